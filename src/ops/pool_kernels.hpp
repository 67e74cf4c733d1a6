// Max-pooling of slabs of one channel block (a feature map, where tensors are plain).
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/pooling.hpp"

namespace convolume::ops {

/// Extents, and the planes that are written: of the output in the forward pass, of the input in the backward one.
struct PoolSlab {
  MaxPool pool;
  Extent3 input, output;
  index_t z0, z1;
};

/// The planes of outputs whose windows reach into the planes [z0, z1) of the input; none, where begin >= end.
struct PoolPlanes {
  index_t begin, end;
};
inline PoolPlanes outputs_touching(const MaxPool& pool, index_t outputs, index_t z0, index_t z1) noexcept {
  const index_t reach = (pool.window.z - 1) * pool.dilation.z;
  return {std::max<index_t>(0, z0 - reach + pool.stride.z - 1) / pool.stride.z,
          std::min(outputs, (z1 - 1) / pool.stride.z + 1)};
}

/// The pointers stand at plane 0 of dense blocks; taps likewise, a byte per element.
template <class T>
struct PoolKernels {
  void (*forward)(const PoolSlab&, const T* x, T* y, std::uint8_t* taps);
  /// Takes from dy what falls into the planes, wherever windows overlap: in the order of the outputs.
  void (*backward)(const PoolSlab&, const T* dy, const std::uint8_t* taps, T* dx, bool add);
};

/// The kernels of the current SIMD target.
template <class T>
PoolKernels<T> pool_kernels(Layout layout) noexcept;

}  // namespace convolume::ops
