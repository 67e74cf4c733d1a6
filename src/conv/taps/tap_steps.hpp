// Describes the places of a sum's taps in the source and in the weights.
#pragma once

#include <cstddef>

#include "convolume/tensor.hpp"

namespace convolume::conv {

/// One tap of one block of source channels, or a row of taps that are summed together: the places of the first term of
/// its first tap. `source` counts from the voxel at which a result begins, `weights` from the first weight. Both are in
/// elements.
struct DirectStep {
  std::ptrdiff_t source = 0, weights = 0;
  /// Channels of the block, 1 to channel_block. Of depthwise products and of the only channel of a plain tensor: taps
  /// whose voxels and weights follow each other.
  int terms = 0;
  int taps = 1;  ///< of a row; at each term, all of them are added before those of the next term
  /// Sets of taps (bits, the first tap is bit 0) for which the first, or the last, voxel of each row of results reads
  /// only padding. Padding is zero and need not be multiplied.
  unsigned pads_first = 0, pads_last = 0;
  unsigned meets_first = 0;  ///< the set of taps of which DirectTap::meets_first holds
  bool reads_first = true;   ///< whether no step of a tile's products before it reads these weights
};

/// Distances between voxels, rows and planes of a box, in elements.
struct BoxStrides {
  index_t voxel = 0, row = 0, plane = 0;
  friend BoxStrides operator*(const BoxStrides& s, const Extent3& step) noexcept {
    return {s.voxel * step.x, s.row * step.y, s.plane * step.z};
  }
};

/// Blocked voxels in a tensor or in scratch.
template <class T>
struct BlockedBox {
  T* data = nullptr;  ///< channel block 0 of the voxel at `origin`
  Extent3 origin{0, 0, 0};
  BoxStrides strides;
  index_t block = 0;  ///< elements between channel blocks

  index_t offset(const Extent3& i) const { return i.z * strides.plane + i.y * strides.row + i.x * strides.voxel; }
  T* at(const Extent3& i) const { return data + offset(i - origin); }
};

}  // namespace convolume::conv
