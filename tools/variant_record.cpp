#include "tools/variant_record.hpp"

#include <filesystem>
#include <fstream>

#include "tools/text_file.hpp"
#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* remedy = "use another file, or remove this one to begin again";

}  // namespace

VariantRecord::VariantRecord(std::string file, Json identity) : file_(std::move(file)), identity_(std::move(identity)) {
  if (file_.empty()) return;
  if (std::filesystem::exists(file_)) {
    read();
  } else {
    require_writable(file_);
  }
}

void VariantRecord::read() {
  std::ifstream stream(file_);
  if (!stream) throw IoError(fmt::format("--out {}: the file cannot be read; {}", file_, remedy));
  const Json json = Json::parse(stream, nullptr, false);
  if (!json.is_object() || !json.contains("layers") || !json["layers"].is_object()) {
    throw FormatError(fmt::format("--out {}: this is no file of `plan variants`; {}", file_, remedy));
  }
  for (const auto& [key, wanted] : identity_.items()) {
    const Json found = json.contains(key) ? json[key] : Json();
    if (found == wanted) continue;
    throw FormatError(fmt::format("--out {}: its {} is {}, but this run has {}; {}", file_, key, found.dump(),
                                  wanted.dump(), remedy));
  }
  for (const auto& [number, layer] : json["layers"].items()) {
    if (!layer.is_object() || !layer.contains("problem") || !layer["problem"].is_string()) {
      throw FormatError(fmt::format("--out {}: layer {} is damaged; {}", file_, number, remedy));
    }
  }
  layers_ = json["layers"];
}

std::optional<Json> VariantRecord::layer(std::size_t number) const {
  const auto found = layers_.find(std::to_string(number));
  if (found == layers_.end()) return std::nullopt;
  return *found;
}

void VariantRecord::add(std::size_t number, const Json& layer) {
  layers_[std::to_string(number)] = layer;
  if (file_.empty()) return;
  Json json = identity_;
  json["layers"] = layers_;
  write_text(file_, json.dump(1) + "\n");
}

}  // namespace convolume::tools
