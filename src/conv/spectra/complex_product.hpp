// Products of complex matrices, one per frequency: what a convolution is between the transforms of its tiles.
#pragma once

#include "convolume/tensor.hpp"

namespace convolume::conv {

/// c(row, lane) = sum over terms k of a(row, k) * b(k, lane), or of a * conj(b), for `columns` blocks of lanes (64
/// bytes) and `frequencies` of each. Real and imaginary parts lie apart; steps in elements. Terms are summed in their
/// order, whatever the rows, so that bits do not depend on how rows are grouped. c overlaps nothing.
///
/// All three directions are such products (Zlateski, Jia, Li, Durand 2018): forward (rows are tiles, terms input
/// channels, lanes output channels, b = w conjugated), backward data (tiles, output channels, input channels) and
/// backward weights (input channels, tiles, output channels, b = dy conjugated).
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
  bool add = false;  ///< to what c holds
  /// With every element of a and vector of b, the one so many elements further is asked for; 0 asks for what is
  /// there.
  std::ptrdiff_t a_ahead = 0, b_ahead = 0;
};

template <class T>
void multiply(const ComplexProduct<T>& product);

/// c(lane) = a(lane) * b(lane) or a * conj(b) for dense (re, im) pairs of lane blocks, `count` of them; c may be a.
template <class T>
struct LaneProduct {
  const T* a;
  const T* b;
  T* c;
  index_t count;
  bool conjugate_b = false;
  bool add = false;
};

template <class T>
void multiply_lanes(const LaneProduct<T>& product);

}  // namespace convolume::conv
