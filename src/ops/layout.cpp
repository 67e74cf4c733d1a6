#include "ops/layout.hpp"

#include "ops/gather.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/layout.cpp"
#include "hwy/foreach_target.h"
// foreach_target comes first.
#include "hwy/highway.h"

#include "ops/layout-inl.hpp"

#ifndef CONVOLUME_OPS_LAYOUT_KERNELS
#define CONVOLUME_OPS_LAYOUT_KERNELS
namespace convolume::ops {
namespace {
template <class T>
struct LayoutKernels {
  void (*block)(const T* plain, index_t channel_stride, index_t channels, index_t voxels, T* blocked);
  void (*unblock)(const T* blocked, index_t channels, index_t voxels, T* plain, index_t channel_stride);
};
}  // namespace
}  // namespace convolume::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

template <class T>
void block(const T* plain, index_t channel_stride, index_t channels, index_t voxels, T* blocked) {
  to_lanes(plain, channel_stride, channels, voxels, blocked, View<T>::lanes);
}

template <class T>
void unblock(const T* blocked, index_t channels, index_t voxels, T* plain, index_t channel_stride) {
  from_lanes(blocked, channels, voxels, plain, channel_stride);
}

LayoutKernels<float> layout_kernels_f32() { return {block<float>, unblock<float>}; }
LayoutKernels<double> layout_kernels_f64() { return {block<double>, unblock<double>}; }

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {
namespace {

HWY_EXPORT(layout_kernels_f32);
HWY_EXPORT(layout_kernels_f64);

template <class T>
LayoutKernels<T> kernels() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(layout_kernels_f32)();
  } else {
    return HWY_DYNAMIC_DISPATCH(layout_kernels_f64)();
  }
}

}  // namespace

template <class T>
void block_channels(const T* plain, index_t channel_stride, index_t channels, index_t voxels, T* blocked) noexcept {
  kernels<T>().block(plain, channel_stride, channels, voxels, blocked);
}

template <class T>
void unblock_channels(const T* blocked, index_t channels, index_t voxels, T* plain, index_t channel_stride) noexcept {
  kernels<T>().unblock(blocked, channels, voxels, plain, channel_stride);
}

template <class T>
void convert(const ConstView<T>& source, const View<T>& target) {
  require_rows("convert", "source", source);
  require_rows("convert", "target", target);
  require_shape("convert", "target", target.shape, source.shape);
  const Origin<T> origin{source, 0};
  const Cut parts = gather_cut<T>(std::span(&origin, 1), target);
  for (index_t n = 0; n < parts.samples; ++n) {
    for (index_t block = 0; block < parts.blocks; ++block) {
      for (index_t slab = 0; slab < parts.slabs; ++slab) {
        gather<T>(std::span(&origin, 1), target, part_of(parts, n, block, slab), false);
      }
    }
  }
}

template void block_channels(const float*, index_t, index_t, index_t, float*) noexcept;
template void block_channels(const double*, index_t, index_t, index_t, double*) noexcept;
template void unblock_channels(const float*, index_t, index_t, float*, index_t) noexcept;
template void unblock_channels(const double*, index_t, index_t, double*, index_t) noexcept;
template void convert(const ConstView<float>&, const View<float>&);
template void convert(const ConstView<double>&, const View<double>&);

}  // namespace convolume::ops
#endif  // HWY_ONCE
