// What a direct convolution spends its time in: sums over channels and taps for rows of voxels, and sums over voxels
// for pairs of channels. Registers hold the sums, lanes are channels of the result.
#pragma once

#include <array>

#include "conv/taps/tap_steps.hpp"

namespace convolume::conv {

/// For `columns` blocks of lanes (64 bytes) and `count` voxels:
///   target[voxel](lane) = start + sum over steps and their terms k of source[voxel + step.source + k] * w[k](lane),
/// where start is what target holds (`add`), or bias(lane), or 0, and w[k] is the vector at weights + step.weights +
/// block * k. Terms are summed in their order, and start is added to the sum, whatever voxels are taken together: bits
/// do not depend on that. target overlaps nothing.
template <class T>
struct VoxelProduct {
  const T* source;
  BoxStrides source_strides;
  const DirectStep* steps;
  index_t step_count;
  const T* weights;
  std::ptrdiff_t weights_column;  ///< between columns
  /// Where the weights of the product behind this one lie from these: they are asked for from memory meanwhile.
  std::ptrdiff_t weights_next;
  T* target;
  BoxStrides target_strides;
  std::ptrdiff_t target_column;
  const T* bias;  ///< columns * 64 bytes, or null
  Extent3 count;
  index_t columns;
  bool add;
  /// Where target is not added to and its vectors are aligned to 64 bytes: it does not stay in the caches, nor are its
  /// lines read first.
  bool past_caches;
};

/// Thread-safe; allocates nothing. T is float or double here and below.
template <class T>
void multiply(const VoxelProduct<T>& product);

/// sums[channel](lane) = start + sum over voxels i of x[i](channel) * dy[i](lane), for `columns` blocks of lanes; start
/// is what sums hold (`add`), or 0. Voxels are summed in their order before the sum is added; a channel's sums lie 64
/// bytes behind those of the one before.
template <class T>
struct ChannelProduct {
  const T* x;
  BoxStrides x_strides;
  const T* dy;
  BoxStrides dy_strides;
  std::ptrdiff_t dy_column;
  T* sums;
  std::ptrdiff_t sums_column;
  Extent3 count;
  index_t channels, columns;
  bool add;
  /// Boxes of `count` voxels that are asked for from memory meanwhile: what the next products read.
  std::array<const T*, 2> next;
  std::array<BoxStrides, 2> next_strides;
};

template <class T>
void multiply(const ChannelProduct<T>& product);

}  // namespace convolume::conv
