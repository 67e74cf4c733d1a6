// Copies boxes of voxels of one channel block from a tensor in either layout into blocked scratch, and back.
#pragma once

#include "conv/tensor_io/block_view.hpp"

namespace convolume::conv {

/// Voxels [origin, origin + extent) of a block. Voxels outside the tensor count as zero.
template <class T>
struct BoxSource {
  BlockView<const T> block;
  Extent3 origin{0, 0, 0}, extent{};
  /// If not null, the voxels are multiplied by the gradient that the activation has at y.
  const Activation* activation = nullptr;
  BlockView<const T> y{};
};

/// Loads a box into to[z][y][x][channel_block] without gaps. Lanes without a channel become zero. `row_scratch` holds a
/// row of y, 64 bytes per voxel; it is needed only with an activation. All functions of this file are thread-safe.
template <class T>
void load_box(const BoxSource<T>& source, T* to, T* row_scratch);

/// Voxels [origin, origin + extent) of a block. All of them must be inside the tensor.
template <class T>
struct BoxTarget {
  BlockView<T> block;
  Extent3 origin{0, 0, 0}, extent{};
  Activation activation{};
  bool add = false;
};

/// Computes target = activation(from), or target += from. `from` has the layout that load_box() writes, and is
/// overwritten. `row_scratch` holds a row.
template <class T>
void store_box(T* from, const BoxTarget<T>& target, T* row_scratch);

/// Computes target = activation(target) for a blocked target. Lanes without a channel become zero.
template <class T>
void activate_box(const BoxTarget<T>& target);

}  // namespace convolume::conv
