// Sums and affine maps of a run of voxels, lane by lane.
//
// Element i of a run belongs to lane i % lanes: its channel, where the tensor is blocked. A run of a plain feature map
// has one channel in all lanes; then their sums belong together and their constants are equal.
#pragma once

#include "convolume/tensor.hpp"

namespace convolume::ops {

template <class T>
struct LaneSums {
  alignas(64) double value[View<T>::lanes];
};

/// The mean is kept in two parts, so that x - mean loses nothing where x is close to it.
template <class T>
struct LaneAffine {
  alignas(64) T mean[View<T>::lanes], mean_rest[View<T>::lanes], of_x[View<T>::lanes], of_dy[View<T>::lanes],
      constant[View<T>::lanes];
};

/// n counts elements. The grouping of each sum follows from n and the SIMD target alone. No kernel allocates.
template <class T>
struct NormKernels {
  /// Σ x
  void (*sum)(const T* x, index_t n, LaneSums<T>& sums);
  /// Σ (x - center)²
  void (*squares)(const T* x, index_t n, const LaneSums<T>& center, LaneSums<T>& sums);
  /// Σ dy and Σ dy · (x - center)
  void (*products)(const T* dy, const T* x, index_t n, const LaneSums<T>& center, LaneSums<T>& of_dy,
                   LaneSums<T>& of_products);
  /// y = of_x · (x - mean) + constant; y may be x.
  void (*forward)(const LaneAffine<T>&, const T* x, T* y, index_t n);
  /// dx = of_dy · dy + of_x · (x - mean) + constant, or dx += that; dx may be dy.
  void (*backward)(const LaneAffine<T>&, const T* x, const T* dy, T* dx, index_t n, bool add);
};

/// The kernels of the current SIMD target.
template <class T>
NormKernels<T> norm_kernels() noexcept;

}  // namespace convolume::ops
