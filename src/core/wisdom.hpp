// The wisdom store: choices that were measured once and are worth keeping between processes.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace convolume {

/// Key-value text in one file. Thread-safe; processes are kept apart by a lock file and an atomic rename, so that a
/// reader sees an old or a new store and never half of one. Nothing here influences a plan that did not ask for it.
class WisdomStore {
 public:
  /// Opens the store; a missing file is an empty store. Throws FormatError for a file that is no wisdom store.
  explicit WisdomStore(std::filesystem::path file);
  /// $CONVOLUME_WISDOM, else $XDG_CACHE_HOME/convolume/wisdom, else ~/.cache/convolume/wisdom.
  static std::filesystem::path default_path();

  std::optional<std::string> find(const std::string& key) const;
  /// Remembers and writes: what other processes stored meanwhile is kept. Throws IoError naming the file.
  void store(const std::string& key, const std::string& value);

 private:
  std::filesystem::path file_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> entries_;
};

}  // namespace convolume
