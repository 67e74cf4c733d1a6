// Max-pooling of Z ranges of one channel block, or of one feature map if tensors are plain.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/pooling.hpp"

namespace convolume::ops {

/// The extents, and the planes that are written: of the output in the forward pass, of the input in the backward pass.
struct PoolSlab {
  MaxPool pool;
  Extent3 input, output;
  index_t z0, z1;
};

/// Output planes whose windows reach into the planes [z0, z1) of the input; none if begin >= end.
struct PoolPlanes {
  index_t begin, end;
};
inline PoolPlanes outputs_touching(const MaxPool& pool, index_t outputs, index_t z0, index_t z1) noexcept {
  const index_t reach = (pool.window.z - 1) * pool.dilation.z;
  return {std::max<index_t>(0, z0 - reach + pool.stride.z - 1) / pool.stride.z,
          std::min(outputs, (z1 - 1) / pool.stride.z + 1)};
}

/// The kernels. Pointers refer to plane 0 of dense blocks; `taps` holds the argmax indices, one byte per element.
template <class T>
struct PoolKernels {
  void (*forward)(const PoolSlab&, const T* x, T* y, std::uint8_t* taps);
  /// Writes the planes of dx in the Z range. If windows overlap, it adds gradients in the order of the outputs.
  void (*backward)(const PoolSlab&, const T* dy, const std::uint8_t* taps, T* dx, bool add);
};

/// Returns the kernels of the current SIMD target.
template <class T>
PoolKernels<T> pool_kernels(Layout layout) noexcept;

}  // namespace convolume::ops
