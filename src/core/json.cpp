#include "core/json.hpp"

#include <set>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convolume/error.hpp"

namespace convolume {
namespace {

template <class Json>
std::string written(const Json& tree, int indent) {
  try {
    return tree.dump(indent);
  } catch (const typename Json::exception& error) {
    throw FormatError(fmt::format("not valid UTF-8 ({})", error.what()));
  }
}

}  // namespace

bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

nlohmann::json parse_json(std::string_view text, int most_depth) {
  using Json = nlohmann::json;
  std::vector<std::set<std::string>> keys;  // one set per open object
  const auto check = [&](int depth, Json::parse_event_t event, const Json& value) {
    if (depth > most_depth) throw FormatError(fmt::format("nested more than {} deep", most_depth));
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) throw FormatError(fmt::format("key '{}' is used twice", key));
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const Json::exception& error) {
    throw FormatError(fmt::format("not valid JSON ({})", error.what()));
  }
}

std::string to_text(const nlohmann::json& tree, int indent) { return written(tree, indent); }
std::string to_text(const nlohmann::ordered_json& tree, int indent) { return written(tree, indent); }

}  // namespace convolume
