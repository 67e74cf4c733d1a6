// What `plan variants --out` keeps: finished layers, so that an interrupted run continues.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace convolume::tools {

class VariantRecord {
 public:
  /// Reads `file` if it exists. `identity` says what the layers depend on: machine, list, options. Without a file name,
  /// nothing is kept. Throws FormatError that names the file, the field and the remedy if the file is damaged or
  /// differs in a field of `identity`, and IoError if it cannot be read or written.
  VariantRecord(std::string file, nlohmann::ordered_json identity);

  /// Returns the finished layer of this number.
  std::optional<nlohmann::ordered_json> layer(std::size_t number) const;
  /// Keeps a layer, and replaces the file as a whole. Throws IoError if the disk is full; the file then has the layers
  /// from before.
  void add(std::size_t number, const nlohmann::ordered_json& layer);
  std::size_t size() const { return layers_.size(); }

 private:
  void read();

  std::string file_;
  nlohmann::ordered_json identity_, layers_ = nlohmann::ordered_json::object();  ///< by number
};

}  // namespace convolume::tools
