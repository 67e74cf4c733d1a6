// The inner loop of direct convolutions that yield voxels: sums over channels and taps for rows of voxels. Registers
// hold the sums. Lanes are channels of the result.
#pragma once

#include <cstddef>

#include "conv/taps/tap_steps.hpp"

namespace convolume::conv {

/// Computes, for `columns` blocks of lanes (64 bytes each) and `count` voxels:
///   target[voxel](lane) = start + sum over steps and their terms k of source[voxel + step.source + k * source_term] *
///                         w[k](lane).
/// `start` is the contents of target (if `add`), or bias(lane), or 0 without a bias. w[k] is the vector at weights +
/// step.weights + block * k. If voxels of the source lie less than a block apart, the source has one channel: the terms
/// are then neighbouring voxels, and w[k] is the vector at weights + step.weights + weights_tap * k. The terms are
/// summed in their order, and then start is added. This order does not depend on which voxels are computed together, so
/// the bits do not either. Lanes from `lanes` on become zero. target overlaps nothing.
template <class T>
struct VoxelProduct {
  const T* source;
  BoxStrides source_strides;
  const DirectStep* steps;
  index_t step_count;
  /// If the source has one channel and its voxels lie side by side: so many terms are summed together, 2 to 5 or 7. The
  /// number divides the terms of each step. 1 means single terms.
  index_t neighbours;
  /// Steps that are rows of taps: the taps of each row if all have the same number, else 0. 1 means single taps.
  /// Between neighbouring taps of a row there are `source_tap` elements of the source and `weights_tap` weights.
  index_t row_taps;
  std::ptrdiff_t source_tap, weights_tap;
  /// For steps that are rows of taps. Whether, for the first and the last result of a row, all taps but one read the
  /// padding. The padding is zero, so kernels may leave out these products.
  bool fully_padded = false;
  std::ptrdiff_t source_term = 1;  ///< between terms in the source; 1 unless all steps are rows of taps
  const T* weights;
  std::ptrdiff_t weights_column;  ///< between columns
  /// Distance from these weights to the weights of the next product, which are prefetched meanwhile.
  std::ptrdiff_t weights_next;
  T* target;
  BoxStrides target_strides;
  std::ptrdiff_t target_column;
  const T* bias;  ///< columns * 64 bytes, or null, which means zeros
  Extent3 count;
  index_t columns;
  index_t together = 2;  ///< columns whose sums are computed together, at most; 1, 2 or 4
  index_t lanes;         ///< of all columns that belong to a channel
  bool add;
  /// Uses non-temporal stores: target does not stay in the caches, and its cache lines are not read first. `add` must
  /// be false, and the vectors of target must be aligned to 64 bytes.
  bool non_temporal;
};

/// Computes a product. Thread-safe; allocates nothing. T is float or double.
template <class T>
using VoxelKernel = void (*)(const VoxelProduct<T>& product);
/// Returns the kernel for single taps of blocks of channels, of the current SIMD target. Plans call this when they are
/// made.
template <class T>
VoxelKernel<T> voxel_kernel() noexcept;
/// Returns the kernel for single taps of a source with one channel, whose voxels lie less than a block apart.
template <class T>
VoxelKernel<T> channel_voxel_kernel() noexcept;
/// Returns the kernel for steps that are rows of taps (`row_taps` is not 1).
template <class T>
VoxelKernel<T> tap_row_kernel() noexcept;

}  // namespace convolume::conv
