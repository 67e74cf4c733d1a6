// Declares pointwise products of spectra (interleaved complex numbers), and a linear epilogue of inverse transforms.
#pragma once

#include "convolume/tensor.hpp"

namespace convolume::conv {

/// Number of terms that are added in registers before the result is added to a sum in memory. A sum that is computed in
/// pieces has the same bits as a sum in one piece if each piece but the last has a multiple of this number of terms.
inline constexpr index_t terms_per_pass = 4;

/// The kernels of one SIMD target. All are thread-safe and allocate nothing.
template <class T>
struct SpectrumKernels {
  /// Computes sum[i] = sum over t < terms of a[t][i] * b[t][i], or times the conjugate of b[t][i], for i < count
  /// complex numbers, or adds this to sum[i] if `add`. At every i the terms are added in order, terms_per_pass at a
  /// time. Pointers are aligned to 64 bytes. `sum` overlaps nothing.
  void (*sum_products)(const T* const* a, const T* const* b, index_t terms, bool conjugate_b, index_t count, bool add,
                       T* sum);
  /// Computes y[i] = scale * x[i] + shift, or adds this value to y[i].
  void (*scale_shift)(const T* x, T scale, T shift, bool add, T* y, index_t n);
};

/// Returns the kernels of the current SIMD target. Plans call this when they are made.
template <class T>
SpectrumKernels<T> spectrum_kernels() noexcept;

}  // namespace convolume::conv
