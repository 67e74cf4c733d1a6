#include "ops/resample.hpp"

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "core/checked.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/resample.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "hwy/highway.h"

#include "ops/simd-inl.hpp"

#ifndef CONVOLUME_OPS_RESAMPLE_KERNELS
#define CONVOLUME_OPS_RESAMPLE_KERNELS
namespace convolume::ops {
namespace {
/// Writes a row of n voxels, each repeated `factor` times.
template <class T>
using WidenRow = void (*)(index_t factor, index_t n, const T* x, T* y);
/// Writes a row of n voxels of dx: sums of factor.z x factor.y rows of dy, which lie stride_z and stride_y apart.
template <class T>
using SumRow = void (*)(const Extent3& factor, index_t n, const T* dy, index_t stride_z, index_t stride_y, T* dx,
                        bool add);
template <class T>
struct ResampleKernels {
  WidenRow<T> widen;
  SumRow<T> sum;
};
}  // namespace
}  // namespace convolume::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

template <class T>
void widen_plain(index_t factor, index_t n, const T* x, T* y) {
  const hn::ScalableTag<T> d;
  const index_t lanes = lanes_of(d);
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
void widen_blocked(index_t factor, index_t n, const T* x, T* y) {
  constexpr index_t width = View<T>::lanes;
  const hn::CappedTag<T, width> d;
  const index_t lanes = lanes_of(d);
  for (index_t i = 0; i < n; ++i, x += width) {
    for (index_t copy = 0; copy < factor; ++copy, y += width) {
      for (index_t lane = 0; lane < width; lane += lanes) hn::StoreU(hn::LoadU(d, x + lane), d, y + lane);
    }
  }
}

template <class T>
void sum_plain(const Extent3& factor, index_t n, const T* dy, index_t stride_z, index_t stride_y, T* dx, bool add) {
  const hn::ScalableTag<T> d;
  const index_t lanes = lanes_of(d);
  for (index_t x = 0; x < n; x += lanes) {
    const index_t count = std::min(lanes, n - x);
    auto sum = hn::Zero(d);
    for (index_t z = 0; z < factor.z; ++z) {
      for (index_t y = 0; y < factor.y; ++y) {
        const T* from = dy + z * stride_z + y * stride_y + x * factor.x;
        if (factor.x == 1) {
          sum = hn::Add(sum, load_lanes(d, from, count));
        } else if (factor.x == 2 && count == lanes) {
          hn::Vec<decltype(d)> even, odd;
          hn::LoadInterleaved2(d, from, even, odd);
          sum = hn::Add(hn::Add(sum, even), odd);
        } else {
          for (index_t copy = 0; copy < factor.x; ++copy) {
            sum = hn::Add(sum, load_strided(d, from + copy, factor.x, count));
          }
        }
      }
    }
    if (add) sum = hn::Add(load_lanes(d, dx + x, count), sum);
    store_lanes(sum, d, dx + x, count);
  }
}

template <class T>
void sum_blocked(const Extent3& factor, index_t n, const T* dy, index_t stride_z, index_t stride_y, T* dx, bool add) {
  constexpr index_t width = View<T>::lanes;
  const hn::CappedTag<T, width> d;
  const index_t lanes = lanes_of(d);
  for (index_t x = 0; x < n; ++x, dx += width, dy += factor.x * width) {
    for (index_t lane = 0; lane < width; lane += lanes) {
      auto sum = hn::Zero(d);
      for (index_t z = 0; z < factor.z; ++z) {
        for (index_t y = 0; y < factor.y; ++y) {
          const T* from = dy + z * stride_z + y * stride_y + lane;
          for (index_t copy = 0; copy < factor.x; ++copy) sum = hn::Add(sum, hn::LoadU(d, from + copy * width));
        }
      }
      if (add) sum = hn::Add(hn::LoadU(d, dx + lane), sum);
      hn::StoreU(sum, d, dx + lane);
    }
  }
}

template <class T>
ResampleKernels<T> resample_kernels(Layout layout) {
  if (layout == Layout::plain) return {widen_plain<T>, sum_plain<T>};
  return {widen_blocked<T>, sum_blocked<T>};
}
ResampleKernels<float> resample_kernels_f32(Layout layout) { return resample_kernels<float>(layout); }
ResampleKernels<double> resample_kernels_f64(Layout layout) { return resample_kernels<double>(layout); }

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {
namespace {

HWY_EXPORT(resample_kernels_f32);
HWY_EXPORT(resample_kernels_f64);

template <class T>
ResampleKernels<T> kernels(Layout layout) {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(resample_kernels_f32)(layout);
  } else {
    return HWY_DYNAMIC_DISPATCH(resample_kernels_f64)(layout);
  }
}

Shape5 upsampled(const Shape5& shape, const Extent3& factor) {
  Shape5 result = shape;
  for (int axis = 0; axis < 3; ++axis) {
    if (factor[axis] < 1) {
      throw InvalidArgument(fmt::format("upsample: the factor is {}; it must be positive", to_string(factor)));
    }
    result.extent[axis] = checked_mul(shape.extent[axis], factor[axis], "upsampled extent");
  }
  return result;
}

template <class T>
void repeat(T* to, const T* from, index_t n) {
  std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
}

/// Writes the planes of y in a part. A plane that equals the previous plane is copied from it.
template <class T>
void widen_part(const View<const T>& x, const View<T>& y, const Extent3& factor, const Part& part) {
  const auto widen = kernels<T>(y.layout).widen;
  for (index_t z = part.z0; z < part.z1; ++z) {
    T* plane = y.block(part.n, part.block) + z * y.stride[2];
    const index_t from_z = z / factor.z;
    if (z > part.z0 && (z - 1) / factor.z == from_z) {
      repeat<T>(plane, plane - y.stride[2], y.stride[2]);
      continue;
    }
    const T* from = x.block(part.n, part.block) + from_z * x.stride[2];
    for (index_t row = 0; row < x.shape.extent.y; ++row, from += x.stride[3]) {
      T* to = plane + row * factor.y * y.stride[3];
      if (factor.x == 1) {
        repeat<T>(to, from, x.stride[3]);
      } else {
        widen(factor.x, x.shape.extent.x, from, to);
      }
      for (index_t copy = 1; copy < factor.y; ++copy) repeat<T>(to + copy * y.stride[3], to, y.stride[3]);
    }
  }
}

/// Writes the planes of dx in a part.
template <class T>
void sum_part(const View<const T>& dy, const View<T>& dx, const Extent3& factor, const Part& part, bool add) {
  const auto sum = kernels<T>(dx.layout).sum;
  for (index_t z = part.z0; z < part.z1; ++z) {
    const T* from = dy.block(part.n, part.block) + z * factor.z * dy.stride[2];
    T* to = dx.block(part.n, part.block) + z * dx.stride[2];
    for (index_t row = 0; row < dx.shape.extent.y; ++row) {
      sum(factor, dx.shape.extent.x, from + row * factor.y * dy.stride[3], dy.stride[2], dy.stride[3],
          to + row * dx.stride[3], add);
    }
  }
}

}  // namespace

template <class T>
Ready append_upsample_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const View<T>& y,
                              const Extent3& factor) {
  require_dense("upsample", "x", x);
  require_dense("upsample", "y", y);
  require_shape("upsample", "y", y.shape, upsampled(x.shape, factor));
  require_layout("upsample", "y", y.layout, x.layout);
  const Cut parts = cut(y);
  const auto collect = [&](const Part& part, std::vector<TaskId>& after) {
    collect_planes(ready, x, part, part.z0 / factor.z, (part.z1 - 1) / factor.z + 1, after);
  };
  auto tasks = append_parts(graph, parts, "upsample", bytes_of<T>(1), collect,
                            [=](const Part& part) { widen_part<T>(x, y, factor, part); });
  return ready_of(graph, parts, std::move(tasks), y);
}

template <class T>
Ready append_upsample_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& dy, const View<T>& dx,
                               const Extent3& factor, bool add) {
  require_dense("upsample gradient", "dy", dy);
  require_dense("upsample gradient", "dx", dx);
  require_shape("upsample gradient", "dy", dy.shape, upsampled(dx.shape, factor));
  require_layout("upsample gradient", "dy", dy.layout, dx.layout);
  const Cut parts = cut(dx.shape, dx.block_channels(), dy.shape.extent.volume() * dy.block_channels());
  const auto collect = [&](const Part& part, std::vector<TaskId>& after) {
    collect_planes(ready, dy, part, part.z0 * factor.z, part.z1 * factor.z, after);
    collect_planes(ready, dx, part, part.z0, part.z1, after);
  };
  auto tasks = append_parts(graph, parts, "upsample_gradient", bytes_of<T>(1), collect,
                            [=](const Part& part) { sum_part<T>(dy, dx, factor, part, add); });
  return ready_of(graph, parts, std::move(tasks), dx);
}

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
