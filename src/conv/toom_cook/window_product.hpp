// The products of toom_cook: matrices of windows and channels at one frequency.
#pragma once

#include "conv/toom_cook/window_points.hpp"

namespace convolume::conv {

/// c[row][column] = the sum over terms of a[row][term] * b[term][column], or c += this sum. Columns are blocks of 64
/// bytes. Strides are in elements. At most terms_in_register terms are summed in a register, register_sums_in_turn such
/// sums are added one after the other, and these are added pairwise.
template <class T>
struct WindowProduct {
  const T* a = nullptr;
  index_t a_row = 0, a_term = 0;
  const T* b = nullptr;
  index_t b_term = 0, b_column = 0;
  T* c = nullptr;
  index_t c_row = 0, c_column = 0;
  index_t rows = 0, terms = 0, columns = 0;
  bool add = false;          ///< only if all terms are added in turn
  std::ptrdiff_t ahead = 0;  ///< elements of b that are prefetched ahead
};

/// A kernel that computes a product. It is thread-safe and allocates nothing.
template <class T>
using WindowMultiply = void (*)(const WindowProduct<T>&);
/// Returns the kernel of the current SIMD target. Plans call this when they are made.
template <class T>
WindowMultiply<T> window_multiply() noexcept;

}  // namespace convolume::conv
