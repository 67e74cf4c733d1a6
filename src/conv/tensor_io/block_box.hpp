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

/// Voxels [origin, origin + extent) of a block. All of them must be inside the tensor.
template <class T>
struct BoxTarget {
  BlockView<T> block;
  Extent3 origin{0, 0, 0}, extent{};
  Activation activation{};
  bool add = false;
  /// Uses non-temporal stores. The tensor must be plain, all its rows aligned to 64 bytes, and `add` false.
  bool non_temporal = false;
};

/// The kernels of one SIMD target. All are thread-safe and allocate nothing.
template <class T>
struct BoxKernels {
  /// Loads a box into to[z][y][x][channel_block] without gaps. Lanes without a channel become zero. `row_scratch` holds
  /// a row of y, 64 bytes per voxel; it is needed only with an activation.
  void (*load)(const BoxSource<T>& source, T* to, T* row_scratch);
  /// Computes target = activation(from), or target += from. `from` has the layout that load() writes, and is
  /// overwritten. `row_scratch` holds a row.
  void (*store)(T* from, const BoxTarget<T>& target, T* row_scratch);
  /// Computes target = activation(target) for a blocked target. Lanes without a channel become zero.
  void (*activate)(const BoxTarget<T>& target);
};

/// Returns the kernels of the current SIMD target. Plans call this when they are made.
template <class T>
BoxKernels<T> box_kernels() noexcept;

}  // namespace convolume::conv
