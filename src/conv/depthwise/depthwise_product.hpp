// The inner loops of direct depthwise convolutions. A voxel is a vector of 64 bytes. Its lanes are channels that are
// never added to each other.
#pragma once

#include <array>

#include "conv/taps/tap_steps.hpp"

namespace convolume::conv {

/// Computes for `count` voxels, lane by lane:
///   target[voxel] = start + sum over steps and their taps k of source[voxel + step.source + k * source_tap] *
///                   weights[step.weights + k * weights_tap].
/// `start` is the contents of target (if `add`), or bias, or 0. `terms` of a step is its number of taps. The taps are
/// summed in their order, and then start is added. This order does not depend on which voxels are computed together,
/// so the bits do not either. target overlaps nothing.
template <class T>
struct TapProduct {
  const T* source;
  BoxStrides source_strides;
  const DirectStep* steps;
  index_t step_count;
  std::ptrdiff_t source_tap, weights_tap;
  const T* weights;
  T* target;
  BoxStrides target_strides;
  const T* bias;  ///< 64 bytes, or null
  Extent3 count;
  bool add;
};

/// The most rows of taps that are summed together.
inline constexpr std::size_t most_tap_rows = 4;

/// Computes sums[row][k] += sum over voxels i of x[row][i + k * x_tap] * dy[i], lane by lane, for `rows` rows of `taps`
/// taps each. The products of the voxels are summed in their order before the result is added. Sums of neighbouring
/// taps lie 64 bytes apart.
template <class T>
struct TapSums {
  std::array<const T*, most_tap_rows> x;
  BoxStrides x_strides;
  std::ptrdiff_t x_tap;
  const T* dy;
  BoxStrides dy_strides;
  std::array<T*, most_tap_rows> sums;
  index_t rows, taps;
  Extent3 count;
};

/// The kernels of one SIMD target. All are thread-safe and allocate nothing. T is float or double.
template <class T>
struct DepthwiseKernels {
  void (*voxels)(const TapProduct<T>& product);
  void (*taps)(const TapSums<T>& product);
  /// Returns how many rows of `taps` taps fit into the registers of the SIMD target; at least 1.
  index_t (*rows_together)(index_t taps);
};

/// Returns the kernels of the current SIMD target. Plans call this when they are made.
template <class T>
DepthwiseKernels<T> depthwise_kernels() noexcept;

}  // namespace convolume::conv
