// Sums and affine maps over a run of voxels, lane by lane.
//
// Element i of a run belongs to lane i % lanes. In a blocked tensor, the lane is a channel. A run of a plain feature
// map has the same channel in all lanes. Then the sums of all lanes must be added, and the constants of all lanes are
// equal.
#pragma once

#include "convolume/tensor.hpp"

namespace convolume::ops {

template <class T>
struct LaneSums {
  alignas(64) double value[View<T>::lanes];
};

/// Constants of an affine map per lane. The mean is stored in two parts, so that x - mean keeps its precision if x is
/// close to the mean.
template <class T>
struct LaneAffine {
  alignas(64) T mean[View<T>::lanes], mean_rest[View<T>::lanes], of_x[View<T>::lanes], of_dy[View<T>::lanes],
      constant[View<T>::lanes];
};

/// The kernels. n counts elements. The order of additions in each sum depends only on n and the SIMD target. No kernel
/// allocates.
template <class T>
struct NormKernels {
  /// Computes Σ x.
  void (*sum)(const T* x, index_t n, LaneSums<T>& sums);
  /// Computes Σ (x - center)².
  void (*squares)(const T* x, index_t n, const LaneSums<T>& center, LaneSums<T>& sums);
  /// Computes Σ dy and Σ dy · (x - center).
  void (*products)(const T* dy, const T* x, index_t n, const LaneSums<T>& center, LaneSums<T>& of_dy,
                   LaneSums<T>& of_products);
  /// Computes y = of_x · (x - mean) + constant. y may be x.
  void (*forward)(const LaneAffine<T>&, const T* x, T* y, index_t n);
  /// Computes dx = of_dy · dy + of_x · (x - mean) + constant, or adds it to dx if `add`. dx may be dy.
  void (*backward)(const LaneAffine<T>&, const T* x, const T* dy, T* dx, index_t n, bool add);
};

/// Returns the kernels of the current SIMD target.
template <class T>
NormKernels<T> norm_kernels() noexcept;

}  // namespace convolume::ops
