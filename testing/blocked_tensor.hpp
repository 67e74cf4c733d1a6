// Makes blocked tensors from plain ones, and compares the two.
#pragma once

#include <cmath>
#include <limits>

#include "convolume/tensor.hpp"

namespace convolume::test {

/// A tensor in blocked memory, pad lanes included.
template <class T>
struct Blocked {
  explicit Blocked(const Shape5& s) : shape(s), memory(s, Layout::blocked) {
    memory.fill(std::numeric_limits<T>::quiet_NaN());
  }
  Blocked(const Tensor<T>& plain) : Blocked(plain.shape()) {
    memory.fill(0);
    each([&](index_t n, index_t c, index_t v, T& at) { at = plain.data()[(n * shape.c + c) * voxels() + v]; });
  }

  index_t voxels() const { return shape.extent.volume(); }
  View<T> view() { return memory.view(); }
  /// Calls body(n, c, voxel, element) for all channels that exist.
  template <class Body>
  void each(const Body& body) {
    const View<T> all = memory.view();
    for (index_t n = 0; n < shape.n; ++n) {
      for (index_t c = 0; c < shape.c; ++c) {
        for (index_t v = 0; v < voxels(); ++v) body(n, c, v, all.channel(n, c)[v * all.stride[4]]);
      }
    }
  }
  bool equals(const Tensor<T>& plain) {
    bool equal = true;
    each([&](index_t n, index_t c, index_t v, T& at) {
      equal = equal && at == plain.data()[(n * shape.c + c) * voxels() + v];
    });
    return equal;
  }
  /// Returns whether every lane without a channel is zero.
  bool padding_is_zero() {
    double all = 0, channels = 0;
    for (index_t i = 0; i < memory.elements(); ++i) all += static_cast<double>(std::abs(memory.data()[i]));
    each([&](index_t, index_t, index_t, T& at) { channels += static_cast<double>(std::abs(at)); });
    return std::abs(all - channels) <= 1e-9 * all;
  }

  Shape5 shape;
  Tensor<T> memory;
};

}  // namespace convolume::test
