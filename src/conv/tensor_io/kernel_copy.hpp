// Copies kernels out of a tensor of weights.
#pragma once

#include <algorithm>

#include "convolume/tensor.hpp"

namespace convolume::conv {

/// Copies the kernels number [begin, end) of w, counted through its rows and columns, to their places in `packed`: the
/// same weights without gaps.
template <class T>
void copy_kernels(const View<const T>& w, index_t begin, index_t end, T* packed) {
  const Extent3& k = w.shape.extent;
  // Kernels whose rows follow each other are one row each.
  const bool is_row = w.stride[4] == 1 && w.stride[3] == k.x && w.stride[2] == k.y * k.x;
  const Extent3 rows = is_row ? Extent3{1, 1, k.volume()} : k;
  T* to = packed + begin * k.volume();
  for (index_t i = begin; i < end; ++i) {
    for (index_t z = 0; z < rows.z; ++z) {
      for (index_t y = 0; y < rows.y; ++y) {
        to = std::copy_n(&w(i / w.shape.c, i % w.shape.c, z, y, 0), rows.x, to);
      }
    }
  }
}

}  // namespace convolume::conv
