// A TOML table that is read key by key: every error names file, line and key, and keys that nobody asked for are one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convolume/tensor.hpp"

namespace convolume::nets {

class TomlTable {
 public:
  /// Parses a text; `origin` names it in errors. Throws ConfigError.
  static TomlTable parse(const std::string& text, const std::string& origin);
  /// An empty table, whose optional keys are all absent; `name` is that of the table for errors.
  static TomlTable empty(const std::string& origin, const std::string& name);

  bool has(const std::string& key) const;
  bool is_text(const std::string& key) const;
  /// A sub-table; `{}` where it is absent.
  std::optional<TomlTable> table(const std::string& key);
  /// An array of tables; empty where it is absent.
  std::vector<TomlTable> tables(const std::string& key);

  std::string text(const std::string& key, const std::optional<std::string>& fallback = std::nullopt);
  /// One of `choices`.
  std::string choice(const std::string& key, const std::vector<std::string>& choices,
                     const std::optional<std::string>& fallback = std::nullopt);
  index_t integer(const std::string& key, index_t least, const std::optional<index_t>& fallback = std::nullopt);
  double number(const std::string& key, double least, double most,
                const std::optional<double>& fallback = std::nullopt);
  bool boolean(const std::string& key, bool fallback);
  /// [z, y, x], or one integer for all three.
  Extent3 extent(const std::string& key, index_t least, const std::optional<Extent3>& fallback = std::nullopt);
  std::vector<std::string> texts(const std::string& key);
  std::vector<double> numbers(const std::string& key);

  /// Replaces a value by one given as TOML text ("width" = "30"), in this table. Throws ConfigError where it does not
  /// parse; a key that nobody reads is found by finish().
  void override_value(const std::string& key, const std::string& value);
  /// Throws ConfigError for a key that was never read, listing those that were asked for.
  void finish() const;
  /// Throws ConfigError at this table (or at `key`).
  [[noreturn]] void fail(const std::string& message, const std::string& key = "") const;
  int line() const;

  struct Impl;

 private:
  explicit TomlTable(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace convolume::nets
