#include "bench/common/temporary_file.hpp"

#include <cstdlib>

#include <unistd.h>

#include "convolume/error.hpp"

namespace convolume::bench {

TemporaryFile::TemporaryFile() {
  std::string pattern = (std::filesystem::temp_directory_path() / "convolume-bench-XXXXXX").string();
  const int file = mkstemp(pattern.data());
  if (file < 0) throw IoError(pattern + ": making a temporary file failed; set TMPDIR to a writable folder");
  close(file);
  path_ = pattern;
}

TemporaryFile::~TemporaryFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace convolume::bench
