// Reductions of a range, in double.
#pragma once

#include "convolume/tensor.hpp"

namespace convolume::ops {

// The grouping of each sum follows from n and the SIMD target alone: not from alignment, nor from threads.
// Thread-safe; nothing allocates.

/// Sum of x[0, n).
template <class T>
double sum(const T* x, index_t n) noexcept;

/// Sum of (x[i] - center)².
template <class T>
double sum_of_squares(const T* x, index_t n, double center = 0) noexcept;

/// Sum of a[i] * (b[i] - center).
template <class T>
double sum_of_products(const T* a, const T* b, index_t n, double center = 0) noexcept;

/// Whether no x[i] is infinite or NaN. Stops at the first block that holds one.
template <class T>
bool all_finite(const T* x, index_t n) noexcept;

}  // namespace convolume::ops
