#include "nets/base/toml_reader.hpp"

#include <algorithm>
#include <cctype>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include "nets/io/volume_source.hpp"

namespace convolume::nets {

struct TomlTable::Impl {
  std::string origin, name;  // name of the table, empty for the root
  // Tables point into the document, because copies in toml++ lose their line numbers.
  std::shared_ptr<toml::table> document;
  toml::table* table = nullptr;
  int line = 0;
  mutable std::set<std::string> asked;

  const toml::node* find(const std::string& key) const {
    asked.insert(key);
    return table->get(key);
  }
};

namespace {

std::string where(const std::string& origin, int line) {
  return line > 0 ? fmt::format("{}:{}", origin, line) : origin;
}

int line_of(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

}  // namespace

void TomlTable::fail(const std::string& message, const std::string& key) const {
  const std::string place = impl_->name.empty() ? "" : fmt::format("[{}] ", impl_->name);
  throw ConfigError(
      fmt::format("{}: {}{}{}", where(impl_->origin, line(key)), place, key.empty() ? "" : key + ": ", message));
}

int TomlTable::line(const std::string& key) const {
  const toml::node* node = key.empty() ? nullptr : impl_->table->get(key);
  return node != nullptr && line_of(*node) > 0 ? line_of(*node) : impl_->line;
}

std::string text_of(const ExactNumber& number) {
  return std::visit([](auto value) { return fmt::format("{}", value); }, number);
}

TomlTable TomlTable::parse(const std::string& text, const std::string& origin) {
  if (const std::string what = io::foreign_text(text); !what.empty()) {
    throw ConfigError(fmt::format("{}: is {}", origin, what));
  }
  auto impl = std::make_shared<Impl>();
  impl->origin = origin;
  try {
    impl->document = std::make_shared<toml::table>(toml::parse(text, origin));
    impl->table = impl->document.get();
  } catch (const toml::parse_error& error) {
    throw ConfigError(
        fmt::format("{}: {}", where(origin, static_cast<int>(error.source().begin.line)), error.description()));
  }
  return TomlTable(std::move(impl));
}

TomlTable TomlTable::empty(const std::string& origin, const std::string& name) {
  auto impl = std::make_shared<Impl>();
  impl->origin = origin;
  impl->name = name;
  impl->document = std::make_shared<toml::table>();
  impl->table = impl->document.get();
  return TomlTable(std::move(impl));
}

bool TomlTable::has(const std::string& key) const { return impl_->find(key) != nullptr; }
bool TomlTable::is_text(const std::string& key) const {
  const toml::node* node = impl_->find(key);
  return node != nullptr && node->is_string();
}
int TomlTable::line() const { return impl_->line; }

std::optional<TomlTable> TomlTable::table(const std::string& key) {
  impl_->asked.insert(key);
  toml::node* node = impl_->table->get(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_table()) fail("must be a table", key);
  auto impl = std::make_shared<Impl>();
  impl->origin = impl_->origin;
  impl->name = key;
  impl->document = impl_->document;
  impl->table = node->as_table();
  impl->line = line_of(*node);
  return TomlTable(std::move(impl));
}

std::vector<TomlTable> TomlTable::tables(const std::string& key) {
  std::vector<TomlTable> result;
  impl_->asked.insert(key);
  toml::node* node = impl_->table->get(key);
  if (node == nullptr) return result;
  if (!node->is_array()) fail(fmt::format("must be an array of tables; write [[{}]]", key), key);
  for (auto& element : *node->as_array()) {
    if (!element.is_table()) fail(fmt::format("must be an array of tables; write [[{}]]", key), key);
    auto impl = std::make_shared<Impl>();
    impl->origin = impl_->origin;
    impl->name = key;
    impl->document = impl_->document;
    impl->table = element.as_table();
    impl->line = line_of(element);
    result.push_back(TomlTable(std::move(impl)));
  }
  return result;
}

std::string TomlTable::text(const std::string& key, const std::optional<std::string>& fallback) {
  const toml::node* node = impl_->find(key);
  if (node == nullptr) {
    if (fallback) return *fallback;
    fail(fmt::format("'{}' is missing", key));
  }
  if (const auto value = node->value_exact<std::string>()) return *value;
  fail("must be a text in quotes", key);
}

std::string TomlTable::choice(const std::string& key, const std::vector<std::string>& choices,
                              const std::optional<std::string>& fallback) {
  const std::string value = text(key, fallback);
  for (const auto& choice : choices) {
    if (value == choice) return value;
  }
  fail(fmt::format("'{}' is unknown; use one of: {}", value, fmt::join(choices, ", ")), key);
}

index_t TomlTable::integer(const std::string& key, index_t least, const std::optional<index_t>& fallback) {
  const toml::node* node = impl_->find(key);
  if (node == nullptr) {
    if (fallback) return *fallback;
    fail(fmt::format("'{}' is missing", key));
  }
  const auto value = node->value_exact<std::int64_t>();
  if (!value) fail("must be an integer", key);
  if (*value < least) fail(fmt::format("{} is too small; use {} or more", *value, least), key);
  return *value;
}

double TomlTable::number(const std::string& key, double least, double most, const std::optional<double>& fallback) {
  const toml::node* node = impl_->find(key);
  if (node == nullptr) {
    if (fallback) return *fallback;
    fail(fmt::format("'{}' is missing", key));
  }
  if (!node->is_number()) fail("must be a number", key);
  const double value = *node->value<double>();
  if (!(value >= least && value <= most))
    fail(fmt::format("{} is out of range; use {} to {}", value, least, most), key);
  return value;
}

bool TomlTable::boolean(const std::string& key, bool fallback) {
  const toml::node* node = impl_->find(key);
  if (node == nullptr) return fallback;
  const auto value = node->value_exact<bool>();
  if (!value) fail("must be true or false", key);
  return *value;
}

Extent3 TomlTable::extent(const std::string& key, index_t least, const std::optional<Extent3>& fallback) {
  const toml::node* node = impl_->find(key);
  if (node == nullptr) {
    if (fallback) return *fallback;
    fail(fmt::format("'{}' is missing", key));
  }
  Extent3 result;
  if (const auto one = node->value_exact<std::int64_t>()) {
    result = Extent3::all(*one);
  } else {
    const toml::array* array = node->as_array();
    if (array == nullptr || array->size() != 3) fail("must be an integer or [z, y, x]", key);
    for (int axis = 0; axis < 3; ++axis) {
      const auto value = (*array)[static_cast<std::size_t>(axis)].value_exact<std::int64_t>();
      if (!value) fail("must be an integer or [z, y, x]", key);
      result[axis] = *value;
    }
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (result[axis] < least) fail(fmt::format("{} is too small; use {} or more", result[axis], least), key);
  }
  return result;
}

std::vector<std::string> TomlTable::texts(const std::string& key) {
  const toml::node* node = impl_->find(key);
  if (node == nullptr) return {};
  if (const auto one = node->value_exact<std::string>()) return {*one};
  const toml::array* array = node->as_array();
  if (array == nullptr) fail("must be a text or an array of texts", key);
  std::vector<std::string> result;
  for (const auto& element : *array) {
    const auto value = element.value_exact<std::string>();
    if (!value) fail("must be a text or an array of texts", key);
    result.push_back(*value);
  }
  return result;
}

std::vector<double> TomlTable::numbers(const std::string& key) {
  std::vector<double> result;
  for (const ExactNumber& number : exact_numbers(key)) {
    result.push_back(std::visit([](auto value) { return static_cast<double>(value); }, number));
  }
  return result;
}

std::vector<ExactNumber> TomlTable::exact_numbers(const std::string& key) {
  std::vector<ExactNumber> all;
  for (const auto& list : number_lists(key)) {
    if (list.size() != 1) fail("must be an array of numbers", key);
    all.push_back(list.front());
  }
  return all;
}

std::vector<std::vector<ExactNumber>> TomlTable::number_lists(const std::string& key) {
  const toml::node* node = impl_->find(key);
  if (node == nullptr) return {};
  const auto number_of = [&](const toml::node& element) -> ExactNumber {
    if (!element.is_number()) fail("must be an array of numbers", key);
    if (const auto* integer = element.as_integer()) return integer->get();
    return *element.value<double>();
  };
  const toml::array* array = node->as_array();
  if (array == nullptr) fail("must be an array of numbers", key);
  std::vector<std::vector<ExactNumber>> result;
  for (const auto& element : *array) {
    auto& list = result.emplace_back();
    if (const toml::array* inner = element.as_array()) {
      for (const auto& number : *inner) list.push_back(number_of(number));
    } else {
      list.push_back(number_of(element));
    }
  }
  return result;
}

void TomlTable::override_value(const std::string& key, const std::string& value) {
  try {
    const toml::table parsed = toml::parse("value = " + value);
    impl_->table->insert_or_assign(key, *parsed.get("value"));
  } catch (const toml::parse_error& error) {
    const bool is_word = std::all_of(value.begin(), value.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '/';
    });
    const std::string quoted =
        is_word ? fmt::format("; a text needs quotes: --set '{}.{}=\"{}\"'", impl_->name, key, value) : "";
    throw ConfigError(
        fmt::format("--set {}.{}={}: not a TOML value ({}){}", impl_->name, key, value, error.description(), quoted));
  }
}

void TomlTable::finish() const {
  for (const auto& [key, node] : *impl_->table) {
    const std::string name(key.str());
    if (!impl_->asked.contains(name)) {
      fail(fmt::format("unknown key; known here: {}", fmt::join(impl_->asked, ", ")), name);
    }
  }
}

}  // namespace convolume::nets
