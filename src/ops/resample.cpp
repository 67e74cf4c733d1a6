#include "ops/resample.hpp"

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "core/checked.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/resample.cpp"
#include "hwy/foreach_target.h"
// foreach_target comes first.
#include "hwy/highway.h"

#include "ops/simd-inl.hpp"

#ifndef CONVOLUME_OPS_RESAMPLE_KERNELS
#define CONVOLUME_OPS_RESAMPLE_KERNELS
namespace convolume::ops {
namespace {
template <class T>
struct ResampleKernels {
  void (*forward)(const Extent3& factor, const Extent3& input, const T* x, T* y);
  void (*backward)(const Extent3& factor, const Extent3& input, const T* dy, T* dx, bool add);
};
}  // namespace
}  // namespace convolume::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

template <class T>
void widen_row(index_t factor, index_t n, const T* x, T* y) {
  const hn::ScalableTag<T> d;
  const index_t lanes = lanes_of(d);
  if (factor == 1) {
    std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(T));
    return;
  }
  index_t i = 0;
  if (factor == 2) {
    for (; i + lanes <= n; i += lanes) {
      const auto v = hn::LoadU(d, x + i);
      hn::StoreInterleaved2(v, v, d, y + 2 * i);
    }
  }
  for (; i < n; ++i) std::fill_n(y + i * factor, factor, x[i]);
}

template <class T>
void forward(const Extent3& factor, const Extent3& input, const T* x, T* y) {
  const index_t width = input.x * factor.x;
  const std::size_t row_bytes = static_cast<std::size_t>(width) * sizeof(T);
  const index_t plane = input.y * factor.y * width;
  for (index_t z = 0; z < input.z; ++z) {
    T* first_plane = y + z * factor.z * plane;
    for (index_t row = 0; row < input.y; ++row) {
      T* first_row = first_plane + row * factor.y * width;
      widen_row(factor.x, input.x, x + (z * input.y + row) * input.x, first_row);
      for (index_t copy = 1; copy < factor.y; ++copy) std::memcpy(first_row + copy * width, first_row, row_bytes);
    }
    for (index_t copy = 1; copy < factor.z; ++copy) {
      std::memcpy(first_plane + copy * plane, first_plane, static_cast<std::size_t>(plane) * sizeof(T));
    }
  }
}

template <class T>
void backward(const Extent3& factor, const Extent3& input, const T* dy, T* dx, bool add) {
  const hn::ScalableTag<T> d;
  const index_t lanes = lanes_of(d);
  const index_t width = input.x * factor.x;
  for (index_t z = 0; z < input.z; ++z) {
    for (index_t row = 0; row < input.y; ++row) {
      T* to = dx + (z * input.y + row) * input.x;
      for (index_t x = 0; x < input.x; x += lanes) {
        const index_t count = std::min(lanes, input.x - x);
        auto sum = hn::Zero(d);
        for (index_t copy_z = 0; copy_z < factor.z; ++copy_z) {
          for (index_t copy_y = 0; copy_y < factor.y; ++copy_y) {
            const index_t from_row = (z * factor.z + copy_z) * input.y * factor.y + row * factor.y + copy_y;
            const T* from = dy + from_row * width + x * factor.x;
            if (factor.x == 1) {
              sum = hn::Add(sum, load_lanes(d, from, count));
            } else if (factor.x == 2 && count == lanes) {
              hn::Vec<decltype(d)> even, odd;
              hn::LoadInterleaved2(d, from, even, odd);
              sum = hn::Add(hn::Add(sum, even), odd);
            } else {
              for (index_t copy_x = 0; copy_x < factor.x; ++copy_x) {
                HWY_ALIGN T buffer[hn::MaxLanes(d)] = {};
                for (index_t i = 0; i < count; ++i) buffer[i] = from[i * factor.x + copy_x];
                sum = hn::Add(sum, hn::Load(d, buffer));
              }
            }
          }
        }
        if (add) sum = hn::Add(load_lanes(d, to + x, count), sum);
        store_lanes(sum, d, to + x, count);
      }
    }
  }
}

ResampleKernels<float> resample_kernels_f32() { return {forward<float>, backward<float>}; }
ResampleKernels<double> resample_kernels_f64() { return {forward<double>, backward<double>}; }

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {
namespace {

HWY_EXPORT(resample_kernels_f32);
HWY_EXPORT(resample_kernels_f64);

template <class T>
ResampleKernels<T> kernels() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(resample_kernels_f32)();
  } else {
    return HWY_DYNAMIC_DISPATCH(resample_kernels_f64)();
  }
}

Shape5 upsampled(const Shape5& shape, const Extent3& factor) {
  Shape5 result = shape;
  for (int axis = 0; axis < 3; ++axis) {
    if (factor[axis] < 1) {
      throw InvalidArgument(fmt::format("upsample: the factor is {} and has to be positive", to_string(factor)));
    }
    result.extent[axis] = checked_mul(shape.extent[axis], factor[axis], "upsampled extent");
  }
  return result;
}

}  // namespace

template <class T>
void upsample_forward(const Extent3& factor, const Extent3& input, const T* x, T* y) noexcept {
  kernels<T>().forward(factor, input, x, y);
}

template <class T>
void upsample_backward(const Extent3& factor, const Extent3& input, const T* dy, T* dx, bool add) noexcept {
  kernels<T>().backward(factor, input, dy, dx, add);
}

template <class T>
Ready append_upsample_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const View<T>& y,
                              const Extent3& factor) {
  require_dense("upsample", "x", x);
  require_dense("upsample", "y", y);
  require_shape("upsample", "y", y.shape, upsampled(x.shape, factor));
  return append_per_map(graph, ready, y.shape, "upsample", map_bytes<T>(y.shape.extent, 1), [=](index_t n, index_t c) {
    upsample_forward(factor, x.shape.extent, x.channel(n, c), y.channel(n, c));
  });
}

template <class T>
Ready append_upsample_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& dy, const View<T>& dx,
                               const Extent3& factor, bool add) {
  require_dense("upsample gradient", "dy", dy);
  require_dense("upsample gradient", "dx", dx);
  require_shape("upsample gradient", "dy", dy.shape, upsampled(dx.shape, factor));
  return append_per_map(graph, ready, dy.shape, "upsample_gradient", map_bytes<T>(dy.shape.extent, 1),
                        [=](index_t n, index_t c) {
                          upsample_backward(factor, dx.shape.extent, dy.channel(n, c), dx.channel(n, c), add);
                        });
}

template void upsample_forward(const Extent3&, const Extent3&, const float*, float*) noexcept;
template void upsample_forward(const Extent3&, const Extent3&, const double*, double*) noexcept;
template void upsample_backward(const Extent3&, const Extent3&, const float*, float*, bool) noexcept;
template void upsample_backward(const Extent3&, const Extent3&, const double*, double*, bool) noexcept;
template Ready append_upsample_forward<float>(TaskGraph&, const Ready&, const ConstView<float>&, const View<float>&,
                                              const Extent3&);
template Ready append_upsample_forward<double>(TaskGraph&, const Ready&, const ConstView<double>&, const View<double>&,
                                               const Extent3&);
template Ready append_upsample_backward<float>(TaskGraph&, const Ready&, const ConstView<float>&, const View<float>&,
                                               const Extent3&, bool);
template Ready append_upsample_backward<double>(TaskGraph&, const Ready&, const ConstView<double>&, const View<double>&,
                                                const Extent3&, bool);

}  // namespace convolume::ops
#endif  // HWY_ONCE
