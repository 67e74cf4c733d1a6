// The part of a volume that lies in memory while patches are cut out of it.
#pragma once

#include <memory>
#include <memory_resource>
#include <stop_token>
#include <utility>
#include <vector>

#include "convolume/scheduler.hpp"
#include "nets/data/stored_volume.hpp"

namespace convolume::nets {

/// A volume in memory, or planes of a file that follow the patches along Z.
///
/// A file is read box by box: begin() says which rows and columns patches read, and load() makes planes available.
/// Planes that were loaded before are kept if they are still needed. gather() may be called by several threads at once,
/// the other functions by one.
class VolumeWindow {
 public:
  /// Uses a volume that is in memory, and that outlives the window.
  explicit VolumeWindow(const StoredVolume& volume) : whole_(&volume), shape_(volume.shape()) {}
  /// Reads from a file, and scales the voxels.
  VolumeWindow(const io::VolumeSource& source, std::shared_ptr<const VolumeScaling> scaling,
               std::pmr::memory_resource* memory);

  /// Returns the shape of the whole volume.
  const Shape5& shape() const noexcept { return shape_; }
  /// Returns the bytes that a window on a file takes for `extent` voxels at once, and for reading on `threads` threads.
  static std::size_t bytes(const io::VolumeInfo& info, const Extent3& extent, int threads);

  /// Forgets all planes. Later ones have the rows and columns of `box`, and at most `box.extent.z` of them are needed
  /// at once.
  void begin(const io::VoxelBox& box);
  /// Makes the planes [first, end) available. Returns false if a stop request came first. Throws what
  /// StoredVolume::read() throws.
  bool load(index_t first, index_t end, Scheduler& scheduler, const std::stop_token& stop);
  /// Writes `count` voxels of a row, from (z, y, x) on, as floats.
  void gather(index_t c, index_t z, index_t y, index_t x, index_t count, float* to) const;

 private:
  struct Pieces;
  const StoredVolume& voxels() const { return whole_ != nullptr ? *whole_ : planes_; }

  const StoredVolume* whole_ = nullptr;  // null if planes are read from a file
  const io::VolumeSource* source_ = nullptr;
  std::shared_ptr<const VolumeScaling> scaling_;
  std::pmr::memory_resource* memory_ = nullptr;
  Shape5 shape_;
  io::VoxelBox box_{};  // where the stored planes lie in the volume
  index_t loaded_ = 0;  // planes [box_.begin.z, box_.begin.z + loaded_) are available
  StoredVolume planes_;
};

}  // namespace convolume::nets
