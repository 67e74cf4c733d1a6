// Reads rows of a volume that is continued beyond its faces.
#pragma once

#include "nets/data/stored_volume.hpp"

namespace convolume::nets {

/// Returns where the central patch of a volume begins. It is negative if the volume is smaller than the patch.
inline Extent3 central_begin(const Extent3& volume, const Extent3& patch) {
  return {(volume.z - patch.z) / 2, (volume.y - patch.y) / 2, (volume.x - patch.x) / 2};
}

/// A volume, of which a part is stored, and how it is continued: by mirroring, or by zeros.
struct PaddedRows {
  const StoredVolume& from;
  io::VoxelBox stored;  ///< where the voxels of `from` lie in the volume; it has each voxel that is read
  Extent3 volume;
  bool zero = false;     ///< voxels outside are 0
  index_t repeated = 0;  ///< with `zero`: so many voxels beyond a face repeat the last one

  /// Writes `n` voxels along X from `at` on, as floats.
  void read(index_t c, const Extent3& at, index_t n, float* to) const;
};

}  // namespace convolume::nets
