#include "ops/pooling.hpp"

#include <array>
#include <limits>

#include <fmt/format.h>

#include "convolume/error.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pooling.cpp"
#include "hwy/foreach_target.h"
// foreach_target comes first.
#include "hwy/highway.h"

#include "ops/simd-inl.hpp"

#ifndef CONVOLUME_OPS_POOLING_KERNELS
#define CONVOLUME_OPS_POOLING_KERNELS
namespace convolume::ops {
namespace {
template <class T>
struct PoolingKernels {
  void (*forward)(const MaxPool&, const Extent3& input, const Extent3& output, const T* x, T* y, std::uint8_t* taps);
  /// Windows that tile the input, 1 or 2 voxels wide.
  void (*backward_tiling)(const MaxPool&, const Extent3& input, const Extent3& output, const T* dy,
                          const std::uint8_t* taps, T* dx, bool add);
};
}  // namespace
}  // namespace convolume::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

/// Every `stride`-th element from p, `count` of them.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_strided(D d, const T* p, index_t stride, index_t count) {
  HWY_ALIGN T buffer[hn::MaxLanes(d)] = {};
  for (index_t i = 0; i < count; ++i) buffer[i] = p[i * stride];
  return hn::Load(d, buffer);
}

/// Even and odd elements from p, of which `available` may be read.
template <class D, class T, class V>
HWY_INLINE void load_pairs(D d, const T* p, index_t available, V& even, V& odd) {
  if (available >= 2 * lanes_of(d)) {
    hn::LoadInterleaved2(d, p, even, odd);
    return;
  }
  HWY_ALIGN T buffer[2 * hn::MaxLanes(d)] = {};
  std::memcpy(buffer, p, static_cast<std::size_t>(available) * sizeof(T));
  hn::LoadInterleaved2(d, buffer, even, odd);
}

/// Stride is 1, 2, or 0 for any other stride along X.
template <int Stride, class T>
void forward_strided(const MaxPool& pool, const Extent3& input, const Extent3& output, const T* x, T* y,
                     std::uint8_t* taps) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  const D d;
  const hn::RebindToUnsigned<D> du;
  using TU = hn::TFromD<decltype(du)>;
  const hn::Rebind<std::uint8_t, decltype(du)> d8;
  const index_t lanes = lanes_of(d);
  const Extent3 window = pool.window, stride = pool.stride, dilation = pool.dilation;

  for (index_t oz = 0; oz < output.z; ++oz) {
    for (index_t oy = 0; oy < output.y; ++oy) {
      for (index_t ox = 0; ox < output.x; ox += lanes) {
        const index_t count = std::min(lanes, output.x - ox);
        V best = hn::Set(d, -std::numeric_limits<T>::infinity());
        auto where = hn::Zero(du);
        TU tap = 0;
        const auto take = [&](V v) HWY_ATTR {
          const auto better = hn::Or(hn::Gt(v, best), hn::IsNaN(v));
          best = hn::IfThenElse(better, v, best);
          where = hn::IfThenElse(hn::RebindMask(du, better), hn::Set(du, tap), where);
          ++tap;
        };
        for (index_t tz = 0; tz < window.z; ++tz) {
          for (index_t ty = 0; ty < window.y; ++ty) {
            const index_t row = (oz * stride.z + tz * dilation.z) * input.y + oy * stride.y + ty * dilation.y;
            const T* from = x + row * input.x + ox * stride.x;
            const index_t left = input.x - ox * stride.x;
            for (index_t tx = 0; tx < window.x; ++tx) {
              const index_t skip = tx * dilation.x;
              if constexpr (Stride == 1) {
                take(load_lanes(d, from + skip, count));
              } else if constexpr (Stride == 2) {
                V even, odd;
                load_pairs(d, from + skip, std::min(left - skip, 2 * lanes), even, odd);
                take(even);
                if (dilation.x == 1 && tx + 1 < window.x) {
                  take(odd);
                  ++tx;
                }
              } else {
                take(load_strided(d, from + skip, stride.x, count));
              }
            }
          }
        }
        const index_t at = (oz * output.y + oy) * output.x + ox;
        store_lanes(best, d, y + at, count);
        HWY_ALIGN std::uint8_t bytes[hn::MaxLanes(d) < 16 ? 16 : hn::MaxLanes(d)];
        hn::StoreU(hn::TruncateTo(d8, where), d8, bytes);
        std::memcpy(taps + at, bytes, static_cast<std::size_t>(count));
      }
    }
  }
}

template <class T>
void forward(const MaxPool& pool, const Extent3& input, const Extent3& output, const T* x, T* y, std::uint8_t* taps) {
  if (pool.stride.x == 1) {
    forward_strided<1>(pool, input, output, x, y, taps);
  } else if (pool.stride.x == 2) {
    forward_strided<2>(pool, input, output, x, y, taps);
  } else {
    forward_strided<0>(pool, input, output, x, y, taps);
  }
}

/// Where windows tile the input, each row of dx is written once: no clearing pass, no scatter.
template <class T>
void backward_tiling(const MaxPool& pool, const Extent3& input, const Extent3& output, const T* dy,
                     const std::uint8_t* taps, T* dx, bool add) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  const D d;
  const hn::RebindToUnsigned<D> du;
  using TU = hn::TFromD<decltype(du)>;
  const index_t lanes = lanes_of(d);
  const Extent3 window = pool.window;
  const auto clear = [add](T* p, index_t n) {
    if (!add) std::memset(p, 0, static_cast<std::size_t>(n) * sizeof(T));
  };

  for (index_t z = 0; z < input.z; ++z) {
    const index_t oz = z / window.z;
    for (index_t y = 0; y < input.y; ++y) {
      const index_t oy = y / window.y;
      T* to = dx + (z * input.y + y) * input.x;
      if (oz >= output.z || oy >= output.y) {
        clear(to, input.x);
        continue;
      }
      const index_t first_tap = ((z % window.z) * window.y + y % window.y) * window.x;
      const T* gradient = dy + (oz * output.y + oy) * output.x;
      const std::uint8_t* tap = taps + (oz * output.y + oy) * output.x;
      for (index_t ox = 0; ox < output.x; ox += lanes) {
        const index_t count = std::min(lanes, output.x - ox);
        HWY_ALIGN TU wide[hn::MaxLanes(d)] = {};
        for (index_t i = 0; i < count; ++i) wide[i] = tap[ox + i];
        const auto where = hn::Load(du, wide);
        const V g = load_lanes(d, gradient + ox, count);
        const auto routed = [&](index_t offset) HWY_ATTR {
          const auto hit = hn::Eq(where, hn::Set(du, static_cast<TU>(first_tap + offset)));
          return hn::IfThenElseZero(hn::RebindMask(d, hit), g);
        };
        if (window.x == 1) {
          V v = routed(0);
          if (add) v = hn::Add(load_lanes(d, to + ox, count), v);
          store_lanes(v, d, to + ox, count);
          continue;
        }
        V even = routed(0), odd = routed(1);
        T* pairs = to + 2 * ox;
        if (add) {
          V before_even, before_odd;
          load_pairs(d, pairs, 2 * count, before_even, before_odd);
          even = hn::Add(before_even, even);
          odd = hn::Add(before_odd, odd);
        }
        if (count == lanes) {
          hn::StoreInterleaved2(even, odd, d, pairs);
        } else {
          HWY_ALIGN T buffer[2 * hn::MaxLanes(d)];
          hn::StoreInterleaved2(even, odd, d, buffer);
          std::memcpy(pairs, buffer, static_cast<std::size_t>(2 * count) * sizeof(T));
        }
      }
      clear(to + output.x * window.x, input.x - output.x * window.x);
    }
  }
}

PoolingKernels<float> pooling_kernels_f32() { return {forward<float>, backward_tiling<float>}; }
PoolingKernels<double> pooling_kernels_f64() { return {forward<double>, backward_tiling<double>}; }

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {
namespace {

HWY_EXPORT(pooling_kernels_f32);
HWY_EXPORT(pooling_kernels_f64);

template <class T>
PoolingKernels<T> kernels() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(pooling_kernels_f32)();
  } else {
    return HWY_DYNAMIC_DISPATCH(pooling_kernels_f64)();
  }
}

constexpr index_t max_window = 256;

Shape5 pooled_shape(const Shape5& input, const MaxPool& pool) {
  return {input.n, input.c, pooled_extent(input.extent, pool)};
}

}  // namespace

Extent3 pooled_extent(const Extent3& input, const MaxPool& pool) {
  Extent3 output;
  for (int axis = 0; axis < 3; ++axis) {
    if (pool.window[axis] < 1 || pool.stride[axis] < 1 || pool.dilation[axis] < 1) {
      throw InvalidArgument(
          fmt::format("max_pool: window {}, stride {} and dilation {} have to be positive on every axis",
                      to_string(pool.window), to_string(pool.stride), to_string(pool.dilation)));
    }
    if (pool.window[axis] > max_window) break;
    index_t reach = 0;
    if (__builtin_mul_overflow(pool.window[axis] - 1, pool.dilation[axis], &reach) || reach >= input[axis]) {
      throw ShapeMismatch(fmt::format("max_pool: a window of {} with dilation {} does not fit into an input of {}",
                                      to_string(pool.window), to_string(pool.dilation), to_string(input)));
    }
    output[axis] = (input[axis] - reach - 1) / pool.stride[axis] + 1;
  }
  if (pool.window.z > max_window || pool.window.y > max_window || pool.window.x > max_window ||
      pool.window.volume() > max_window) {
    throw InvalidArgument(fmt::format("max_pool: a window of {} has more than {} voxels; pool twice instead",
                                      to_string(pool.window), max_window));
  }
  return output;
}

template <class T>
void max_pool_forward(const MaxPool& pool, const Extent3& input, const Extent3& output, const T* x, T* y,
                      std::uint8_t* taps) noexcept {
  kernels<T>().forward(pool, input, output, x, y, taps);
}

template <class T>
void max_pool_backward(const MaxPool& pool, const Extent3& input, const Extent3& output, const T* dy,
                       const std::uint8_t* taps, T* dx, bool add) noexcept {
  if (pool.stride == pool.window && pool.dilation == Extent3::all(1) && pool.window.x <= 2) {
    kernels<T>().backward_tiling(pool, input, output, dy, taps, dx, add);
    return;
  }
  if (!add) std::fill_n(dx, input.z * input.y * input.x, T{0});
  std::array<index_t, max_window> offset{};
  index_t tap = 0;
  for (index_t z = 0; z < pool.window.z; ++z) {
    for (index_t y = 0; y < pool.window.y; ++y) {
      for (index_t x = 0; x < pool.window.x; ++x) {
        offset[static_cast<std::size_t>(tap++)] =
            (z * pool.dilation.z * input.y + y * pool.dilation.y) * input.x + x * pool.dilation.x;
      }
    }
  }
  for (index_t oz = 0; oz < output.z; ++oz) {
    for (index_t oy = 0; oy < output.y; ++oy) {
      T* to = dx + (oz * pool.stride.z * input.y + oy * pool.stride.y) * input.x;
      for (index_t ox = 0; ox < output.x; ++ox) to[ox * pool.stride.x + offset[*taps++]] += *dy++;
    }
  }
}

template <class T>
Ready append_max_pool_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const View<T>& y,
                              const View<std::uint8_t>& taps, const MaxPool& pool) {
  require_dense("max_pool", "x", x);
  require_dense("max_pool", "y", y);
  require_dense("max_pool", "taps", taps);
  const Shape5 pooled = pooled_shape(x.shape, pool);
  require_shape("max_pool", "y", y.shape, pooled);
  require_shape("max_pool", "taps", taps.shape, pooled);
  return append_per_map(graph, ready, y.shape, "max_pool", map_bytes<T>(x.shape.extent, 1), [=](index_t n, index_t c) {
    max_pool_forward(pool, x.shape.extent, y.shape.extent, x.channel(n, c), y.channel(n, c), taps.channel(n, c));
  });
}

template <class T>
Ready append_max_pool_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& dy,
                               const View<const std::uint8_t>& taps, const View<T>& dx, const MaxPool& pool, bool add) {
  require_dense("max_pool gradient", "dy", dy);
  require_dense("max_pool gradient", "taps", taps);
  require_dense("max_pool gradient", "dx", dx);
  const Shape5 pooled = pooled_shape(dx.shape, pool);
  require_shape("max_pool gradient", "dy", dy.shape, pooled);
  require_shape("max_pool gradient", "taps", taps.shape, pooled);
  return append_per_map(graph, ready, dy.shape, "max_pool_gradient", map_bytes<T>(dx.shape.extent, 1),
                        [=](index_t n, index_t c) {
                          max_pool_backward(pool, dx.shape.extent, dy.shape.extent, dy.channel(n, c),
                                            taps.channel(n, c), dx.channel(n, c), add);
                        });
}

template void max_pool_forward(const MaxPool&, const Extent3&, const Extent3&, const float*, float*,
                               std::uint8_t*) noexcept;
template void max_pool_forward(const MaxPool&, const Extent3&, const Extent3&, const double*, double*,
                               std::uint8_t*) noexcept;
template void max_pool_backward(const MaxPool&, const Extent3&, const Extent3&, const float*, const std::uint8_t*,
                                float*, bool) noexcept;
template void max_pool_backward(const MaxPool&, const Extent3&, const Extent3&, const double*, const std::uint8_t*,
                                double*, bool) noexcept;
template Ready append_max_pool_forward<float>(TaskGraph&, const Ready&, const ConstView<float>&, const View<float>&,
                                              const View<std::uint8_t>&, const MaxPool&);
template Ready append_max_pool_forward<double>(TaskGraph&, const Ready&, const ConstView<double>&, const View<double>&,
                                               const View<std::uint8_t>&, const MaxPool&);
template Ready append_max_pool_backward<float>(TaskGraph&, const Ready&, const ConstView<float>&,
                                               const View<const std::uint8_t>&, const View<float>&, const MaxPool&,
                                               bool);
template Ready append_max_pool_backward<double>(TaskGraph&, const Ready&, const ConstView<double>&,
                                                const View<const std::uint8_t>&, const View<double>&, const MaxPool&,
                                                bool);

}  // namespace convolume::ops
#endif  // HWY_ONCE
