// What a direct depthwise convolution spends its time in: a voxel is a vector of 64 bytes, whose lanes are channels
// that never meet.
#pragma once

#include <array>

#include "conv/taps/tap_steps.hpp"

namespace convolume::conv {

/// For `count` voxels, lane by lane:
///   target[voxel] = start + sum over steps and their taps k of source[voxel + step.source + k * source_tap] *
///                   weights[step.weights + k * weights_tap],
/// where start is what target holds (`add`), or bias, or 0, and `terms` of a step counts its taps. Taps are summed in
/// their order, and start is added to the sum, whatever voxels are taken together: bits do not depend on that. target
/// overlaps nothing.
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

/// Thread-safe; allocates nothing. T is float or double here and below.
template <class T>
void multiply(const TapProduct<T>& product);

/// Rows of taps that are summed together.
inline constexpr std::size_t most_tap_rows = 4;

/// sums[row][k] += sum over voxels i of x[row][i + k * x_tap] * dy[i], lane by lane, for `rows` rows of `taps` taps
/// each. Voxels are summed in their order before the sum is added; sums of neighbouring taps lie 64 bytes apart.
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

template <class T>
void multiply(const TapSums<T>& product);

/// How many rows of so many taps registers have room for, on this machine's target; at least 1.
index_t tap_rows_together(index_t taps) noexcept;

}  // namespace convolume::conv
