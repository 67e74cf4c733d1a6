// Declares linear combinations of complex vectors, the inner loop of PrunedTransform.
#pragma once

#include "convolume/tensor.hpp"

namespace convolume::fft {

/// The kernel of one SIMD target. Thread-safe. Allocates nothing.
template <class T>
struct CombinationKernels {
  /// Computes sum[i] = sum over t < terms of c[t] * x[t][i] for i < count, or adds it to sum[i] if `add`. All numbers
  /// are complex.
  void (*combine)(const T* const* x, const T* c, index_t terms, index_t count, bool add, T* sum);
};

/// Returns the kernel of the current SIMD target. Plans call this when they are made.
template <class T>
CombinationKernels<T> combination_kernels() noexcept;

}  // namespace convolume::fft
