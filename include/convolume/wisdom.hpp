// The wisdom store: measured choices that are kept between processes.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "convolume/version.hpp"

namespace convolume {

/// Key-value text in one file. Thread-safe. A lock file and an atomic rename protect it between processes, so that a
/// reader sees an old or a new store, never a partial one. Only callers that ask for measurements read it.
class CONVOLUME_API WisdomStore {
 public:
  /// Opens the store; a missing file is an empty store. Throws FormatError if the file is not a wisdom store, and
  /// IoError that names the file if it cannot be read.
  explicit WisdomStore(std::filesystem::path file);
  /// Returns $CONVOLUME_WISDOM, or $XDG_CACHE_HOME/convolume/wisdom, or ~/.cache/convolume/wisdom, whichever is set
  /// first. Without any of them, returns a file in the temporary directory.
  static std::filesystem::path default_path();

  /// Returns the value of a key, if the file had it when this object read it.
  std::optional<std::string> find(const std::string& key) const;
  /// Stores an entry and writes the file. Keeps entries that other processes have stored meanwhile. Throws IoError that
  /// names the file, and FormatError as the constructor does.
  void store(const std::string& key, const std::string& value);

 private:
  std::filesystem::path file_;
  std::map<std::string, std::string> entries_;  // guarded by ForkLock::wisdom
};

}  // namespace convolume
