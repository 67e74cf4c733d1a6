// Everything that can change a rounding, as text: written into checkpoints, compared on resume.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace convolume {

/// An ordered list of named facts. Equal records promise equal bits.
class NumericsRecord {
 public:
  /// Facts of this build and machine: library version, compiler, contraction, SIMD target, machine-model row.
  static NumericsRecord of_this_build();
  /// Reads what to_text() wrote; throws FormatError naming the line.
  static NumericsRecord from_text(std::string_view text);

  void set(std::string key, std::string value);
  const std::map<std::string, std::string>& entries() const noexcept { return entries_; }
  /// One "key = value" line per entry, sorted by key; newlines in values are escaped.
  std::string to_text() const;
  /// The first entry in which the records differ, as "key: 'ours' here, 'theirs' there"; nothing where they are equal.
  std::optional<std::string> first_difference(const NumericsRecord& theirs) const;

 private:
  std::map<std::string, std::string> entries_;
};

}  // namespace convolume
