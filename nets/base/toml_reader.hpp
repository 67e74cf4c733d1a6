// Reads a TOML table key by key. Every error names file, line and key. A key that is never read is an error.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "convolume/tensor.hpp"

namespace convolume::nets {

/// A number of a description: an integer, which is exact, or a float.
using ExactNumber = std::variant<std::int64_t, double>;
std::string text_of(const ExactNumber& number);

class TomlTable {
 public:
  /// Parses a text. `origin` is its name in errors. Throws ConfigError.
  static TomlTable parse(const std::string& text, const std::string& origin);
  /// Returns an empty table, in which every optional key is absent. `name` is the table's name in errors.
  static TomlTable empty(const std::string& origin, const std::string& name);

  bool has(const std::string& key) const;
  bool is_text(const std::string& key) const;
  /// Returns a sub-table, or nothing if it is absent.
  std::optional<TomlTable> table(const std::string& key);
  /// Returns an array of tables; it is empty if the key is absent.
  std::vector<TomlTable> tables(const std::string& key);

  std::string text(const std::string& key, const std::optional<std::string>& fallback = std::nullopt);
  /// Returns one of `choices`. Throws ConfigError for any other text.
  std::string choice(const std::string& key, const std::vector<std::string>& choices,
                     const std::optional<std::string>& fallback = std::nullopt);
  /// Return a number; bounds are inclusive.
  index_t integer(const std::string& key, index_t least, const std::optional<index_t>& fallback = std::nullopt);
  double number(const std::string& key, double least, double most,
                const std::optional<double>& fallback = std::nullopt);
  bool boolean(const std::string& key, bool fallback);
  /// Reads [z, y, x], or one integer for all three axes.
  Extent3 extent(const std::string& key, index_t least, const std::optional<Extent3>& fallback = std::nullopt);
  std::vector<std::string> texts(const std::string& key);
  std::vector<double> numbers(const std::string& key);
  /// Returns numbers as they are written: integers are exact.
  std::vector<ExactNumber> exact_numbers(const std::string& key);
  /// Returns lists of numbers. A number alone is a list of one: [0, 1, [2, 3]].
  std::vector<std::vector<ExactNumber>> number_lists(const std::string& key);

  /// Replaces a value in this table by a value in TOML text ("width" = "30"). Throws ConfigError if the text does not
  /// parse. finish() reports a replaced key that is never read.
  void override_value(const std::string& key, const std::string& value);
  /// Throws ConfigError for a key that was never read, and lists the known keys.
  void finish() const;
  /// Throws ConfigError at the line of this table, or of `key`.
  [[noreturn]] void fail(const std::string& message, const std::string& key = "") const;
  int line() const;
  /// Returns the line of a key, or that of the table if the key is absent.
  int line(const std::string& key) const;

  struct Impl;

 private:
  explicit TomlTable(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace convolume::nets
