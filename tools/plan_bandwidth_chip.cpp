#include "tools/plan_bandwidth_chip.hpp"

#include <algorithm>

#include "tools/toml_file.hpp"
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convolume/error.hpp"

namespace convolume::tools {
namespace {

constexpr const char* example = "docs/sw26010.toml is an example";

/// A table of a chip file. Messages name the file and the field.
class ChipTable {
 public:
  /// `within` stands before the fields in messages, for example "issue.".
  ChipTable(const toml::table& table, const std::string& file, std::string within)
      : table_(table), file_(file), within_(std::move(within)) {}

  void allow(const std::vector<std::string_view>& fields) const {
    for (const auto& [key, node] : table_) {
      const std::string_view name = key.str();
      if (std::find(fields.begin(), fields.end(), name) == fields.end()) {
        refuse(std::string(name), fmt::format("is no field; valid are {}", fmt::join(fields, ", ")));
      }
    }
  }

  ChipTable table(const char* field) const {
    const toml::table* found = node(field).as_table();
    if (found == nullptr) refuse(field, fmt::format("is no table; write [{}]; {}", field, example));
    return {*found, file_, within_ + field + "."};
  }

  double number(const char* field) const { return number_of(node(field), field); }

  std::optional<double> number_if_given(const char* field) const {
    return table_.contains(field) ? std::optional(number(field)) : std::nullopt;
  }

  index_t count(const char* field) const {
    const toml::node& value = node(field);
    if (!value.is_integer()) refuse(field, "is no whole number; write one, for example 4");
    return value.as_integer()->get();
  }

  std::vector<double> numbers(const char* field) const {
    const toml::array* array = node(field).as_array();
    if (array == nullptr) refuse(field, "is no list; write numbers in brackets, for example [32, 64]");
    std::vector<double> values;
    for (std::size_t i = 0; i < array->size(); ++i) {
      values.push_back(number_of((*array)[i], fmt::format("{}[{}]", field, i)));
    }
    return values;
  }

  [[noreturn]] void refuse(const std::string& field, const std::string& why) const {
    refuse_field(file_, within_ + field, why);
  }

 private:
  const toml::node& node(const char* field) const {
    const toml::node* found = table_.get(field);
    if (found == nullptr) refuse(field, fmt::format("is missing; write it; {}", example));
    return *found;
  }

  double number_of(const toml::node& value, const std::string& field) const {
    if (value.is_integer()) return static_cast<double>(value.as_integer()->get());
    if (!value.is_floating_point()) refuse(field, "is no number; write one, for example 1.45");
    return value.as_floating_point()->get();
  }

  const toml::table& table_;
  const std::string& file_;
  std::string within_;
};

plan::KernelTask read_task(const ChipTable& issue) {
  issue.allow({"multiply_adds", "reordered", "simple", "float", "cast_slots"});
  return {.multiply_adds = issue.number("multiply_adds"),
          .reordered = issue.number("reordered"),
          .simple = issue.number_if_given("simple"),
          .single = issue.number_if_given("float"),
          .cast_slots = issue.number_if_given("cast_slots")};
}

std::vector<plan::DmaRate> read_dma(const ChipTable& bandwidth) {
  bandwidth.allow({"run_bytes", "get_gb_per_s", "put_gb_per_s"});
  const std::vector<double> runs = bandwidth.numbers("run_bytes"), get = bandwidth.numbers("get_gb_per_s"),
                            put = bandwidth.numbers("put_gb_per_s");
  const auto check = [&](const char* field, const std::vector<double>& values) {
    if (values.size() != runs.size()) {
      bandwidth.refuse(field, fmt::format("has {} values, but run_bytes has {}; write one value for each length of run",
                                          values.size(), runs.size()));
    }
  };
  check("get_gb_per_s", get);
  check("put_gb_per_s", put);
  std::vector<plan::DmaRate> dma;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    dma.push_back({.run_bytes = runs[i], .get_gb_per_s = get[i], .put_gb_per_s = put[i]});
  }
  return dma;
}

}  // namespace

plan::Chip read_chip(const std::string& file) {
  const toml::table root = read_small_toml(file, "a chip");
  const ChipTable table(root, file, "");
  table.allow({"ghz", "groups", "cores", "vector", "scratch_bytes", "gload_gb_per_s", "published_gflops", "issue",
               "bandwidth"});
  plan::Chip chip{.name = file,
                  .ghz = table.number("ghz"),
                  .groups = table.count("groups"),
                  .cores = table.count("cores"),
                  .vector = table.count("vector"),
                  .scratch_bytes = table.count("scratch_bytes"),
                  .task = read_task(table.table("issue")),
                  .gload_gb_per_s = table.number_if_given("gload_gb_per_s"),
                  .published_gflops = table.number_if_given("published_gflops"),
                  .dma = read_dma(table.table("bandwidth"))};
  try {
    plan::validate(chip);
  } catch (const InvalidArgument& error) {
    throw FormatError(error.what());  // it names the chip, which is the file
  }
  return chip;
}

}  // namespace convolume::tools
