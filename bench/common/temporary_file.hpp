// A file that exists as long as an object.
#pragma once

#include <filesystem>

namespace convolume::bench {

/// An empty file in the folder for temporary files. The destructor removes it.
class TemporaryFile {
 public:
  /// Throws IoError if the file cannot be made.
  TemporaryFile();
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace convolume::bench
