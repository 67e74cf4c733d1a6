// Conversion between channels of plain feature maps and lanes of blocked voxels.
#if defined(CONVOLUME_OPS_LAYOUT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_OPS_LAYOUT_INL
#undef CONVOLUME_OPS_LAYOUT_INL
#else
#define CONVOLUME_OPS_LAYOUT_INL
#endif

#include <algorithm>

#include "hwy/highway.h"

#include "convolume/tensor.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Squares of one 128-bit vector per row (4 x 4 floats, 2 x 2 doubles) are transposed in registers. Wider vectors would
// need shuffles across 128-bit blocks, and they are not faster, because the bandwidth of the L2 limits the speed.

/// Computes to[j * to_stride + i] = from[i * from_stride + j] for i, j below the side of a square.
template <class T>
HWY_INLINE void transpose_square(const T* from, index_t from_stride, T* to, index_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  constexpr index_t side = 16 / sizeof(T);
  for (index_t i = 0; i < side; ++i) {
    for (index_t j = 0; j < side; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
#else
  const hn::CappedTag<T, 16 / sizeof(T)> d;
  const auto row0 = hn::LoadU(d, from), row1 = hn::LoadU(d, from + from_stride);
  const auto low01 = hn::InterleaveLower(d, row0, row1), high01 = hn::InterleaveUpper(d, row0, row1);
  if constexpr (sizeof(T) == 8) {
    hn::StoreU(low01, d, to);
    hn::StoreU(high01, d, to + to_stride);
  } else {
    const hn::Repartition<double, decltype(d)> pairs;
    const auto row2 = hn::LoadU(d, from + 2 * from_stride), row3 = hn::LoadU(d, from + 3 * from_stride);
    const auto low23 = hn::InterleaveLower(d, row2, row3), high23 = hn::InterleaveUpper(d, row2, row3);
    const auto store = [&](auto lower, auto upper, index_t column) HWY_ATTR {
      const auto a = hn::BitCast(pairs, lower), b = hn::BitCast(pairs, upper);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, a, b)), d, to + column * to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, a, b)), d, to + (column + 1) * to_stride);
    };
    store(low01, low23, 0);
    store(high01, high23, 2);
  }
#endif
}

// Feature maps that lie a power of two apart fall into the same few sets of a cache. Therefore only 16 voxels of each
// map are handled at a time.
constexpr index_t lane_run = 16;

template <class T>
HWY_INLINE void run_to_lanes(const T* plain, index_t channel_stride, index_t channels, index_t voxels, T* blocked) {
  constexpr index_t width = View<T>::lanes, side = 16 / sizeof(T);
  const index_t squares = voxels / side * side;
  index_t c = 0;
  for (; c + side <= channels; c += side) {
    const T* from = plain + c * channel_stride;
    for (index_t v = 0; v < squares; v += side) {
      transpose_square(from + v, channel_stride, blocked + v * width + c, width);
    }
    for (index_t lane = 0; lane < side; ++lane) {
      for (index_t v = squares; v < voxels; ++v) blocked[v * width + c + lane] = from[lane * channel_stride + v];
    }
  }
  for (; c < channels; ++c) {
    for (index_t v = 0; v < voxels; ++v) blocked[v * width + c] = plain[c * channel_stride + v];
  }
}

template <class T>
HWY_INLINE void run_from_lanes(const T* blocked, index_t channels, index_t voxels, T* plain, index_t channel_stride) {
  constexpr index_t width = View<T>::lanes, side = 16 / sizeof(T);
  const index_t squares = voxels / side * side;
  index_t c = 0;
  for (; c + side <= channels; c += side) {
    T* to = plain + c * channel_stride;
    for (index_t v = 0; v < squares; v += side) {
      transpose_square(blocked + v * width + c, width, to + v, channel_stride);
    }
    for (index_t lane = 0; lane < side; ++lane) {
      for (index_t v = squares; v < voxels; ++v) to[lane * channel_stride + v] = blocked[v * width + c + lane];
    }
  }
  for (; c < channels; ++c) {
    for (index_t v = 0; v < voxels; ++v) plain[c * channel_stride + v] = blocked[v * width + c];
  }
}

/// Computes blocked[v · B + c] = plain[c · channel_stride + v] for c < channels, where B is the lanes of a voxel. Sets
/// 0 for c in [channels, filled). The other lanes of a voxel keep their values.
template <class T>
HWY_INLINE void to_lanes(const T* plain, index_t channel_stride, index_t channels, index_t voxels, T* blocked,
                         index_t filled) {
  constexpr index_t width = View<T>::lanes;
  for (index_t v = 0; v < voxels; v += lane_run) {
    const index_t count = std::min(lane_run, voxels - v);
    T* to = blocked + v * width;
    run_to_lanes(plain + v, channel_stride, channels, count, to);
    if (channels == filled) continue;
    for (index_t i = 0; i < count; ++i) std::fill(to + i * width + channels, to + i * width + filled, T{0});
  }
}

/// Computes the inverse of to_lanes. Other lanes are not read.
template <class T>
HWY_INLINE void from_lanes(const T* blocked, index_t channels, index_t voxels, T* plain, index_t channel_stride) {
  for (index_t v = 0; v < voxels; v += lane_run) {
    run_from_lanes(blocked + v * View<T>::lanes, channels, std::min(lane_run, voxels - v), plain + v, channel_stride);
  }
}

}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
