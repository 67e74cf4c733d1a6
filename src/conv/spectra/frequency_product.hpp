// Pointwise products of spectra (interleaved complex numbers) and the linear ends of an inverse transform.
#pragma once

#include "convolume/tensor.hpp"

namespace convolume::conv {

/// Terms that are summed up in registers before they are added to a sum in memory. Sums that come in pieces have the
/// bits of a whole one where the pieces hold a multiple of so many terms.
inline constexpr index_t terms_per_pass = 4;

/// sum[i] = sum over t < terms of a[t][i] * b[t][i], or times the conjugate of b[t][i]; i < count complex numbers.
/// The terms are added in passes, in order, at every i. Pointers 64-byte aligned; `sum` overlaps nothing.
template <class T>
void sum_of_products(const T* const* a, const T* const* b, index_t terms, bool conjugate_b, index_t count,
                     T* sum) noexcept;

/// As above, added to what `sum` holds.
template <class T>
void add_products(const T* const* a, const T* const* b, index_t terms, bool conjugate_b, index_t count,
                  T* sum) noexcept;

/// y[i] = scale * x[i] + shift, or added to y[i].
template <class T>
void scale_shift(const T* x, T scale, T shift, bool add, T* y, index_t n) noexcept;

}  // namespace convolume::conv
