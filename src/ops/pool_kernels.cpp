#include "ops/pool_kernels.hpp"

#include <array>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pool_kernels.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "hwy/highway.h"

#include "ops/simd-inl.hpp"

#ifndef CONVOLUME_OPS_POOL_KERNELS
#define CONVOLUME_OPS_POOL_KERNELS
namespace convolume::ops {
namespace {

/// Returns the elements between the first voxel of a window and each of its voxels. A voxel has `width` elements.
inline std::array<index_t, 256> tap_offsets(const PoolSlab& slab, index_t width) {
  const Extent3 window = slab.pool.window, dilation = slab.pool.dilation;
  std::array<index_t, 256> offset{};
  std::size_t tap = 0;
  for (index_t z = 0; z < window.z; ++z) {
    for (index_t y = 0; y < window.y; ++y) {
      for (index_t x = 0; x < window.x; ++x) {
        const index_t row = z * dilation.z * slab.input.y + y * dilation.y;
        offset[tap++] = (row * slab.input.x + x * dilation.x) * width;
      }
    }
  }
  return offset;
}

/// Returns the planes of the windows of output plane `oz` that fall into the Z range.
inline PoolPlanes window_planes_touching(const PoolSlab& slab, index_t oz) {
  const index_t first = oz * slab.pool.stride.z, dilation = slab.pool.dilation.z;
  const index_t begin = std::max<index_t>(0, slab.z0 - first + dilation - 1) / dilation;
  return {begin, std::min(slab.pool.window.z, (slab.z1 - 1 - first) / dilation + 1)};
}

inline bool tiles(const MaxPool& pool) { return pool.stride == pool.window && pool.dilation == Extent3::all(1); }

}  // namespace
}  // namespace convolume::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

/// Loads the even and the odd elements from p, of which `available` may be read.
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

/// Pools plain feature maps. `Stride` is 1 or 2, or 0 for any other stride along X.
template <int Stride, class T>
void forward_plain(const PoolSlab& slab, const T* x, T* y, std::uint8_t* taps) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  const D d;
  const hn::RebindToUnsigned<D> du;
  using TU = hn::TFromD<decltype(du)>;
  const hn::Rebind<std::uint8_t, decltype(du)> d8;
  const index_t lanes = lanes_of(d);
  const Extent3 input = slab.input, output = slab.output;
  const Extent3 window = slab.pool.window, stride = slab.pool.stride, dilation = slab.pool.dilation;

  for (index_t oz = slab.z0; oz < slab.z1; ++oz) {
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

/// Backward for windows of 1 or 2 voxels along X that tile the input. Each row of dx is written once, without clearing
/// it first and without a scatter.
template <class T>
void tile_plain(const PoolSlab& slab, const T* dy, const std::uint8_t* taps, T* dx, bool add) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  const D d;
  const hn::RebindToUnsigned<D> du;
  using TU = hn::TFromD<decltype(du)>;
  const index_t lanes = lanes_of(d);
  const Extent3 input = slab.input, output = slab.output, window = slab.pool.window;
  const auto clear = [add](T* p, index_t n) {
    if (!add) std::memset(p, 0, static_cast<std::size_t>(n) * sizeof(T));
  };

  for (index_t z = slab.z0; z < slab.z1; ++z) {
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

/// Backward for windows of any kind: an element of dx is the sum over the outputs whose maximum it was, in the order of
/// the outputs.
template <class T>
void scatter_plain(const PoolSlab& slab, const T* dy, const std::uint8_t* taps, T* dx, bool add) {
  const Extent3 input = slab.input, output = slab.output, stride = slab.pool.stride;
  const std::array<index_t, 256> offset = tap_offsets(slab, 1);
  const index_t window_plane = slab.pool.window.y * slab.pool.window.x, plane = input.y * input.x;
  if (!add) std::fill(dx + slab.z0 * plane, dx + slab.z1 * plane, T{0});
  const PoolPlanes planes = outputs_touching(slab.pool, output.z, slab.z0, slab.z1);
  for (index_t oz = planes.begin; oz < planes.end; ++oz) {
    const PoolPlanes inside = window_planes_touching(slab, oz);
    const index_t first = inside.begin * window_plane, last = inside.end * window_plane;
    for (index_t oy = 0; oy < output.y; ++oy) {
      const index_t row = (oz * output.y + oy) * output.x;
      T* to = dx + (oz * stride.z * input.y + oy * stride.y) * input.x;
      for (index_t ox = 0; ox < output.x; ++ox) {
        const std::uint8_t tap = taps[row + ox];
        if (tap >= first && tap < last) to[ox * stride.x + offset[tap]] += dy[row + ox];
      }
    }
  }
}

/// Loads a vector of argmax indices, which are bytes, and widens them to the lanes of T.
template <class DU>
HWY_INLINE hn::Vec<DU> load_taps(DU du, const std::uint8_t* taps) {
  const hn::Rebind<std::uint8_t, DU> d8;
  const hn::Rebind<std::uint32_t, DU> d32;
  const auto wide = hn::PromoteTo(d32, hn::LoadU(d8, taps));
  if constexpr (sizeof(hn::TFromD<DU>) == 4) {
    return wide;
  } else {
    return hn::PromoteTo(du, wide);
  }
}

template <class T>
void forward_blocked(const PoolSlab& slab, const T* x, T* y, std::uint8_t* taps) {
  constexpr index_t width = View<T>::lanes;
  const hn::CappedTag<T, width> d;
  using V = hn::Vec<decltype(d)>;
  const hn::RebindToUnsigned<decltype(d)> du;
  using TU = hn::TFromD<decltype(du)>;
  const hn::Rebind<std::uint8_t, decltype(du)> d8;
  const index_t lanes = lanes_of(d);
  const Extent3 input = slab.input, output = slab.output, stride = slab.pool.stride;
  const std::array<index_t, 256> offset = tap_offsets(slab, width);
  const auto window = static_cast<std::size_t>(slab.pool.window.z * slab.pool.window.y * slab.pool.window.x);

  for (index_t oz = slab.z0; oz < slab.z1; ++oz) {
    for (index_t oy = 0; oy < output.y; ++oy) {
      const T* row = x + (oz * stride.z * input.y + oy * stride.y) * input.x * width;
      const index_t at = (oz * output.y + oy) * output.x * width;
      for (index_t i = 0; i < output.x * width; i += lanes) {
        const T* from = row + i / width * stride.x * width + i % width;
        V best = hn::Set(d, -std::numeric_limits<T>::infinity());
        auto where = hn::Zero(du);
        for (std::size_t tap = 0; tap < window; ++tap) {
          const V v = hn::LoadU(d, from + offset[tap]);
          const auto better = hn::Or(hn::Gt(v, best), hn::IsNaN(v));
          best = hn::IfThenElse(better, v, best);
          where = hn::IfThenElse(hn::RebindMask(du, better), hn::Set(du, static_cast<TU>(tap)), where);
        }
        hn::StoreU(best, d, y + at + i);
        hn::StoreU(hn::TruncateTo(d8, where), d8, taps + at + i);
      }
    }
  }
}

/// Backward for windows that tile the input. Each voxel of dx is written once.
template <class T>
void tile_blocked(const PoolSlab& slab, const T* dy, const std::uint8_t* taps, T* dx, bool add) {
  constexpr index_t width = View<T>::lanes;
  const hn::CappedTag<T, width> d;
  using V = hn::Vec<decltype(d)>;
  const hn::RebindToUnsigned<decltype(d)> du;
  using TU = hn::TFromD<decltype(du)>;
  const index_t lanes = lanes_of(d);
  const Extent3 input = slab.input, output = slab.output, window = slab.pool.window;
  const auto clear = [add](T* p, index_t voxels) {
    if (!add) std::memset(p, 0, static_cast<std::size_t>(voxels * width) * sizeof(T));
  };

  for (index_t z = slab.z0; z < slab.z1; ++z) {
    const index_t oz = z / window.z;
    for (index_t y = 0; y < input.y; ++y) {
      const index_t oy = y / window.y;
      T* to = dx + (z * input.y + y) * input.x * width;
      if (oz >= output.z || oy >= output.y) {
        clear(to, input.x);
        continue;
      }
      const index_t first_tap = ((z % window.z) * window.y + y % window.y) * window.x;
      const index_t row = (oz * output.y + oy) * output.x * width;
      for (index_t i = 0; i < output.x * width; i += lanes) {
        const auto where = load_taps(du, taps + row + i);
        const V g = hn::LoadU(d, dy + row + i);
        T* from = to + i / width * window.x * width + i % width;
        for (index_t tap = 0; tap < window.x; ++tap) {
          const auto hit = hn::Eq(where, hn::Set(du, static_cast<TU>(first_tap + tap)));
          V v = hn::IfThenElseZero(hn::RebindMask(d, hit), g);
          if (add) v = hn::Add(hn::LoadU(d, from + tap * width), v);
          hn::StoreU(v, d, from + tap * width);
        }
      }
      clear(to + output.x * window.x * width, input.x - output.x * window.x);
    }
  }
}

/// Adds one row of outputs to the rows of dx under one row of their windows. `tap` is the index of the first voxel of
/// that row of the window.
template <class T>
void add_row_blocked(const PoolSlab& slab, index_t tap, const T* dy, const std::uint8_t* taps, T* dx) {
  constexpr index_t width = View<T>::lanes;
  const hn::CappedTag<T, width> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  using TU = hn::TFromD<decltype(du)>;
  const index_t lanes = lanes_of(d), window = slab.pool.window.x;
  const index_t step = slab.pool.stride.x * width, skip = slab.pool.dilation.x * width;
  for (index_t i = 0; i < slab.output.x * width; i += lanes) {
    const auto where = load_taps(du, taps + i);
    const auto g = hn::LoadU(d, dy + i);
    T* to = dx + i / width * step + i % width;
    for (index_t x = 0; x < window; ++x, to += skip) {
      const auto hit = hn::Eq(where, hn::Set(du, static_cast<TU>(tap + x)));
      hn::StoreU(hn::Add(hn::LoadU(d, to), hn::IfThenElseZero(hn::RebindMask(d, hit), g)), d, to);
    }
  }
}

/// Backward for windows of any kind. Each lane may have its maximum at another voxel, so each voxel of a window takes
/// its own lanes.
template <class T>
void scatter_blocked(const PoolSlab& slab, const T* dy, const std::uint8_t* taps, T* dx, bool add) {
  constexpr index_t width = View<T>::lanes;
  const Extent3 input = slab.input, output = slab.output;
  const MaxPool& pool = slab.pool;
  const index_t plane = input.y * input.x * width;
  if (!add) std::fill(dx + slab.z0 * plane, dx + slab.z1 * plane, T{0});
  const PoolPlanes planes = outputs_touching(slab.pool, output.z, slab.z0, slab.z1);
  for (index_t oz = planes.begin; oz < planes.end; ++oz) {
    const PoolPlanes inside = window_planes_touching(slab, oz);
    for (index_t oy = 0; oy < output.y; ++oy) {
      const index_t row = (oz * output.y + oy) * output.x * width;
      for (index_t z = inside.begin; z < inside.end; ++z) {
        for (index_t y = 0; y < pool.window.y; ++y) {
          const index_t to_plane = oz * pool.stride.z + z * pool.dilation.z;
          const index_t to_row = to_plane * input.y + oy * pool.stride.y + y * pool.dilation.y;
          add_row_blocked(slab, (z * pool.window.y + y) * pool.window.x, dy + row, taps + row,
                          dx + to_row * input.x * width);
        }
      }
    }
  }
}

template <class T>
void forward(const PoolSlab& slab, const T* x, T* y, std::uint8_t* taps) {
  if (slab.pool.stride.x == 1) {
    forward_plain<1>(slab, x, y, taps);
  } else if (slab.pool.stride.x == 2) {
    forward_plain<2>(slab, x, y, taps);
  } else {
    forward_plain<0>(slab, x, y, taps);
  }
}

template <class T>
void backward(const PoolSlab& slab, const T* dy, const std::uint8_t* taps, T* dx, bool add) {
  if (tiles(slab.pool) && slab.pool.window.x <= 2) {
    tile_plain(slab, dy, taps, dx, add);
  } else {
    scatter_plain(slab, dy, taps, dx, add);
  }
}

template <class T>
void backward_blocked(const PoolSlab& slab, const T* dy, const std::uint8_t* taps, T* dx, bool add) {
  if (tiles(slab.pool)) {
    tile_blocked(slab, dy, taps, dx, add);
  } else {
    scatter_blocked(slab, dy, taps, dx, add);
  }
}

template <class T>
PoolKernels<T> kernels_of(Layout layout) {
  if (layout == Layout::plain) return {forward<T>, backward<T>};
  return {forward_blocked<T>, backward_blocked<T>};
}
PoolKernels<float> pool_kernels_f32(Layout layout) { return kernels_of<float>(layout); }
PoolKernels<double> pool_kernels_f64(Layout layout) { return kernels_of<double>(layout); }

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {
namespace {
HWY_EXPORT(pool_kernels_f32);
HWY_EXPORT(pool_kernels_f64);
}  // namespace

template <class T>
PoolKernels<T> pool_kernels(Layout layout) noexcept {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(pool_kernels_f32)(layout);
  } else {
    return HWY_DYNAMIC_DISPATCH(pool_kernels_f64)(layout);
  }
}

template PoolKernels<float> pool_kernels(Layout) noexcept;
template PoolKernels<double> pool_kernels(Layout) noexcept;

}  // namespace convolume::ops
#endif  // HWY_ONCE
