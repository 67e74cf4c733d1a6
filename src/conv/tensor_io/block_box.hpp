// Boxes of voxels of one channel block, from a tensor in either layout into blocked scratch and back.
#pragma once

#include "conv/tensor_io/block_view.hpp"

namespace convolume::conv {

/// Voxels [origin, origin + extent) of a block; those outside the tensor count as zero.
template <class T>
struct BoxSource {
  BlockView<const T> block;
  Extent3 origin{0, 0, 0}, extent{};
  /// Multiplies by the gradient that `activation` has at y, where given.
  const Activation* activation = nullptr;
  BlockView<const T> y{};
};

/// to[z][y][x][channel_block], dense; lanes without a channel become zero. Takes the caller's scratch for a row of y:
/// 64 bytes a voxel, needed with an activation only. Thread-safe, as everything here.
template <class T>
void load_box(const BoxSource<T>& source, T* to, T* row_scratch);

/// Voxels [origin, origin + extent) of a block, all of them inside the tensor.
template <class T>
struct BoxTarget {
  BlockView<T> block;
  Extent3 origin{0, 0, 0}, extent{};
  Activation activation{};
  bool add = false;
};

/// target = activation(from), or target += from: `from` is dense as above and is overwritten. Takes scratch for a row.
template <class T>
void store_box(T* from, const BoxTarget<T>& target, T* row_scratch);

/// target = activation(target) for a blocked target; lanes without a channel become zero.
template <class T>
void activate_box(const BoxTarget<T>& target);

}  // namespace convolume::conv
