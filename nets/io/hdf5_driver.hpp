// Lets HDF5 write into a file that is being written atomically, and survives a full disk. Private to this room.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <hdf5.h>

#include "core/files.hpp"

namespace convolume::nets::io::detail {

/// What HDF5 writes to. HDF5 cannot recover if writing fails while it closes a file, so a failure is noted here and
/// HDF5 is told that all is well. What could not be written is kept in memory, because HDF5 may read it again.
class Hdf5Target {
 public:
  explicit Hdf5Target(const AtomicFile& file) : descriptor_(file.descriptor()) {}
  Hdf5Target(const Hdf5Target&) = delete;
  Hdf5Target& operator=(const Hdf5Target&) = delete;

  /// Makes HDF5 use this object for files that are created with the access list. Returns a negative number on failure.
  herr_t use_for(hid_t access);
  /// Returns the first error number of the operating system, or 0.
  int error() const noexcept { return error_; }
  /// From now on nothing is written.
  void abandon() noexcept {
    if (error_ == 0) error_ = -1;
  }

  void read(std::uint64_t offset, std::size_t size, void* buffer);
  void write(std::uint64_t offset, std::size_t size, const void* buffer);
  void truncate(std::uint64_t size);

 private:
  int descriptor_, error_ = 0;
  std::map<std::uint64_t, std::vector<char>> lost_;  // writes that failed, by offset
};

}  // namespace convolume::nets::io::detail
