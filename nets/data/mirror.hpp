// Continues volumes by mirroring.
#pragma once

#include <algorithm>

#include "nets/io/volume_info.hpp"

namespace convolume::nets {

/// Returns the index in [0, n) of the voxel that stands at place i, if n voxels are mirrored at the first and last one.
inline index_t mirrored_index(index_t i, index_t n) noexcept {
  if (n == 1) return 0;
  const index_t period = 2 * (n - 1);
  i %= period;
  if (i < 0) i += period;
  return i < n ? i : period - i;
}

/// Returns the voxels of a volume that a box reads, if the volume is continued by mirroring.
inline io::VoxelBox voxels_read(const io::VoxelBox& box, const Extent3& volume) noexcept {
  io::VoxelBox result;
  for (int axis = 0; axis < 3; ++axis) {
    index_t least = volume[axis], largest = -1;
    for (index_t i = box.begin[axis]; i < box.end()[axis] && largest - least + 1 < volume[axis]; ++i) {
      const index_t at = mirrored_index(i, volume[axis]);
      least = std::min(least, at);
      largest = std::max(largest, at);
    }
    result.begin[axis] = least;
    result.extent[axis] = largest - least + 1;
  }
  return result;
}

}  // namespace convolume::nets
