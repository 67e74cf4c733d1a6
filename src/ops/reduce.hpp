// Reductions of a range, in double.
#pragma once

#include "convolume/tensor.hpp"

namespace convolume::ops {

// The order of additions in each sum depends only on n and the SIMD target, not on alignment or threads. Thread-safe;
// they allocate nothing.

/// The kernels of one SIMD target. They compute what the functions below compute.
template <class T>
struct ReduceKernels {
  double (*sum)(const T* x, index_t n);
  double (*squares)(const T* x, index_t n, double center);
  double (*products)(const T* a, const T* b, index_t n, double center);
  bool (*finite)(const T* x, index_t n);
};

/// Returns the kernels of the current SIMD target. Plans call this when they are made.
template <class T>
ReduceKernels<T> reduce_kernels() noexcept;

/// Returns the sum of x[0, n).
template <class T>
double sum(const T* x, index_t n) noexcept;

/// Returns the sum of (x[i] - center)².
template <class T>
double sum_of_squares(const T* x, index_t n, double center = 0) noexcept;

/// Returns the sum of a[i] * (b[i] - center).
template <class T>
double sum_of_products(const T* a, const T* b, index_t n, double center = 0) noexcept;

/// Returns whether no x[i] is infinite or NaN. Stops at the first block that contains one.
template <class T>
bool all_finite(const T* x, index_t n) noexcept;

}  // namespace convolume::ops
