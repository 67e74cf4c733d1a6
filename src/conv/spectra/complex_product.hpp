// Declares products of complex matrices, one per frequency. Between the transforms of its tiles, a convolution is such
// a product.
#pragma once

#include "convolume/tensor.hpp"

namespace convolume::conv {

/// Computes c(row, lane) = sum over k < terms of a(row, k) * b(k, lane), or of a * conj(b). There are `columns` blocks
/// of lanes (64 bytes each) and `frequencies` such products. Real and imaginary parts are stored separately. All steps
/// are in elements. The terms are added in the order of k for any number of rows, so the bits do not depend on how rows
/// are grouped. c overlaps nothing.
///
/// All three directions are such products (Zlateski, Jia, Li, Durand 2018):
/// - forward: rows are tiles, k counts input channels, lanes are output channels, b = w is conjugated;
/// - backward data: rows are tiles, k counts output channels, lanes are input channels;
/// - backward weights: rows are input channels, k counts tiles, lanes are output channels, b = dy is conjugated.
template <class T>
struct ComplexProduct {
  const T* a;
  std::ptrdiff_t a_row, a_term, a_im, a_frequency;
  const T* b;
  std::ptrdiff_t b_term, b_im, b_frequency, b_column;
  T* c;
  std::ptrdiff_t c_row, c_im, c_frequency, c_column;
  index_t rows, terms, frequencies, columns;
  bool conjugate_b = false;
  bool add = false;  ///< to the contents of c
  /// Prefetch distances in elements, from each element of a and each vector of b that is read. With 0 the prefetch has
  /// no effect.
  std::ptrdiff_t a_ahead = 0, b_ahead = 0;
};

/// Computes c(lane) = a(lane) * b(lane), or a * conj(b), for `count` pairs (re, im) of lane blocks without gaps. c may
/// be a.
template <class T>
struct LaneProduct {
  const T* a;
  const T* b;
  T* c;
  index_t count;
  bool conjugate_b = false;
  bool add = false;
};

/// The kernels of one SIMD target. All are thread-safe and allocate nothing.
template <class T>
struct ComplexKernels {
  void (*multiply)(const ComplexProduct<T>& product);
  void (*multiply_lanes)(const LaneProduct<T>& product);
};

/// Returns the kernels of the current SIMD target. Plans call this when they are made.
template <class T>
ComplexKernels<T> complex_kernels() noexcept;

}  // namespace convolume::conv
