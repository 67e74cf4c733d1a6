// Everything that can change a rounding, as text. It is written into checkpoints and compared on resume.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace convolume {

/// A list of named facts, sorted by name. Equal records promise equal bits.
class NumericsRecord {
 public:
  /// Which entries first_difference() compares: all, or only the entries that this record has.
  enum class Compare { all_keys, own_keys };

  /// Returns the facts of this build and machine: library version, compiler, floating-point contraction, SIMD target,
  /// machine-model row, C library, Highway.
  static NumericsRecord of_this_build();
  /// Reads what to_text() wrote. Throws FormatError that names the line.
  static NumericsRecord from_text(std::string_view text);

  void set(std::string key, std::string value);
  /// Adds a fact for readers that decides no rounding. Its key begins with "info.", and first_difference() ignores it.
  void inform(const std::string& key, std::string value) { set("info." + key, std::move(value)); }
  const std::map<std::string, std::string>& entries() const noexcept { return entries_; }
  /// Returns one "key = value" line per entry, sorted by key. Newlines in values are escaped.
  std::string to_text() const;
  /// Returns the first entry in which the records differ and that decides rounding, as "key: 'ours' here, 'theirs'
  /// there", or nothing if they are equal. A difference of the SIMD target comes first, and its text says how to use
  /// theirs.
  std::optional<std::string> first_difference(const NumericsRecord& theirs, Compare compare = Compare::all_keys) const;

 private:
  std::map<std::string, std::string> entries_;
};

}  // namespace convolume
