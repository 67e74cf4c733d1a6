#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/toom_cook/window_weights.cpp"
#include "conv/toom_cook/window_weights.hpp"

#include <algorithm>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// This header comes after hwy/highway.h because it needs the macros of that header.
#include "hwy/cache_control.h"

#include "conv/toom_cook/window_points-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {
namespace {

/// Transforms lines of three taps, `step` blocks of lanes apart, to lines of six values.
HWY_INLINE void TransformTaps(const double* taps, std::ptrdiff_t step, double* values, std::ptrdiff_t value_step,
                              std::ptrdiff_t lanes) {
  using namespace toom_cook;
  for (std::ptrdiff_t i = 0; i < lanes; ++i) {
    const double w0 = taps[i], w1 = taps[step + i], w2 = taps[2 * step + i];
    const double even_a = (w0 + a2 * w2) * (1 / of_a), odd_a = w1 * (a / of_a);
    const double even_b = (w0 + b2 * w2) * (1 / of_b), odd_b = w1 * (b / of_b);
    values[i] = w0 * (1 / of_zero);
    values[value_step + i] = even_a + odd_a;
    values[2 * value_step + i] = even_a - odd_a;
    values[3 * value_step + i] = even_b + odd_b;
    values[4 * value_step + i] = even_b - odd_b;
    values[5 * value_step + i] = w2;
  }
}

/// Returns the taps of the kernels of one term, in double: [tap][lane].
template <class T>
void LoadTaps(const WindowWeights<T>& weights, const T* w, double* taps) {
  constexpr std::ptrdiff_t n = block_lanes<T>;
  const index_t count = weights.shape.taps.volume();
  if (weights.lanes < n) std::fill(taps, taps + count * n, 0.0);
  for (index_t i = 0; i < weights.lanes; ++i, w += weights.lane_step) {
    for (index_t tap = 0; tap < count; ++tap) {
      taps[tap * n + i] = static_cast<double>(w[weights.mirrored ? count - 1 - tap : tap]);
    }
  }
}

/// Transforms the rows and columns of `count` planes of 3 x 3 taps.
template <std::ptrdiff_t N>
void TransformTapPlanes(const double* taps, index_t count, double* planes) {
  HWY_ALIGN double rows[window_taps * window_points * N];
  for (index_t z = 0; z < count; ++z, taps += window_taps * window_taps * N, planes += plane_frequencies * N) {
    for (std::ptrdiff_t y = 0; y < window_taps; ++y) {
      TransformTaps(taps + y * window_taps * N, N, rows + y * window_points * N, N, N);
    }
    for (std::ptrdiff_t x = 0; x < window_points; ++x) {
      TransformTaps(rows + x * N, window_points * N, planes + x * N, window_points * N, N);
    }
  }
}

/// Transforms the kernels of one term. Value f is written to to + f * step.
template <class T>
void TransformTerm(const WindowWeights<T>& weights, const T* w, T* to, std::ptrdiff_t step) {
  constexpr std::ptrdiff_t n = block_lanes<T>;
  const WindowShape& shape = weights.shape;
  HWY_ALIGN double taps[window_taps * window_taps * window_taps * n], planes[window_taps * plane_frequencies * n],
      line[window_points * n];
  LoadTaps(weights, w, taps);
  if (shape.transforms_planes()) TransformTapPlanes<n>(taps, shape.taps.z, planes);
  const double* from = shape.transforms_planes() ? planes : taps;
  const index_t frequencies = shape.plane_frequencies(), points = shape.points().z;
  for (index_t f = 0; f < frequencies; ++f, from += n) {
    if (shape.transforms_lines()) TransformTaps(from, frequencies * n, line, n, n);
    const double* values = shape.transforms_lines() ? line : from;
    for (index_t z = 0; z < points; ++z, to += step) {
      for (std::ptrdiff_t i = 0; i < n; ++i) to[i] = static_cast<T>(values[z * n + i]);
    }
  }
}

/// Values of a frequency lie far from those of the next one. So the terms are transformed in scratch memory first, and
/// then each stretch of values is written at once.
template <class T>
void TransformWeights(const WindowWeights<T>& weights, T* to, index_t frequency, T* scratch) {
  const hn::CappedTag<T, static_cast<std::size_t>(block_lanes<T>)> d;
  const auto lanes = static_cast<index_t>(hn::Lanes(d));
  const index_t stretch = weights.terms * block_lanes<T>;
  for (index_t term = 0; term < weights.terms; ++term) {
    TransformTerm(weights, weights.w + term * weights.term_step, scratch + term * block_lanes<T>, stretch);
  }
  const index_t frequencies = weights.shape.frequencies();
  for (index_t f = 0; f < frequencies; ++f, to += frequency, scratch += stretch) {
    if (weights.non_temporal) {
      for (index_t i = 0; i < stretch; i += lanes) hn::Stream(hn::Load(d, scratch + i), d, to + i);
    } else {
      for (index_t i = 0; i < stretch; i += lanes) hn::StoreU(hn::Load(d, scratch + i), d, to + i);
    }
  }
  if (weights.non_temporal) hwy::FlushStream();
}

/// Computes three taps of a line from its six values.
template <class T>
HWY_INLINE void InvertTaps(const T* values, std::ptrdiff_t step, T* taps, std::ptrdiff_t tap_step) {
  const hn::ScalableTag<T> d;
  WindowLine<hn::Vec<decltype(d)>> line;
  CONVOLUME_UNROLL
  for (int k = 0; k < window_points; ++k) line[k] = hn::LoadU(d, values + k * step);
  InvertLine<window_taps>(d, line);
  CONVOLUME_UNROLL
  for (int k = 0; k < window_taps; ++k) hn::StoreU(line[k], d, taps + k * tap_step);
}

/// Inverts a plane of 6 x 6 values, `step` elements apart, to 3 x 3 taps in blocks of lanes.
template <class T>
void InvertTapPlane(const T* values, std::ptrdiff_t step, T* taps) {
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(hn::ScalableTag<T>()));
  HWY_ALIGN T rows[window_taps * window_points * static_cast<int>(hn::MaxLanes(hn::ScalableTag<T>()))];
  for (std::ptrdiff_t x = 0; x < window_points; ++x) {
    InvertTaps(values + x * step, window_points * step, rows + x * lanes, window_points * lanes);
  }
  for (std::ptrdiff_t y = 0; y < window_taps; ++y) {
    InvertTaps(static_cast<const T*>(rows) + y * window_points * lanes, lanes, taps + y * window_taps * block_lanes<T>,
               block_lanes<T>);
  }
}

template <class T>
void InverseKernel(const WindowShape& shape, const T* from, index_t frequency, T* taps) {
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(hn::ScalableTag<T>()));
  HWY_ALIGN T planes[window_taps * plane_frequencies * static_cast<int>(hn::MaxLanes(hn::ScalableTag<T>()))];
  const index_t frequencies = shape.plane_frequencies();
  for (std::ptrdiff_t lane = 0; lane < block_lanes<T>; lane += lanes, from += lanes, taps += lanes) {
    if (!shape.transforms_lines()) {
      InvertTapPlane(from, frequency, taps);
    } else if (!shape.transforms_planes()) {
      InvertTaps(from, frequency, taps, block_lanes<T>);
    } else {
      for (index_t f = 0; f < frequencies; ++f) {
        InvertTaps(from + f * window_points * frequency, frequency, planes + f * lanes, frequencies * lanes);
      }
      for (std::ptrdiff_t z = 0; z < window_taps; ++z) {
        InvertTapPlane(static_cast<const T*>(planes) + z * frequencies * lanes, lanes,
                       taps + z * window_taps * window_taps * block_lanes<T>);
      }
    }
  }
}

template <class T>
constexpr WeightTransforms<T> Kernels() {
  return {.weights = TransformWeights<T>, .inverse_kernel = InverseKernel<T>};
}

}  // namespace

WeightTransforms<float> WeightTransformsF32() { return Kernels<float>(); }
WeightTransforms<double> WeightTransformsF64() { return Kernels<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

HWY_EXPORT(WeightTransformsF32);
HWY_EXPORT(WeightTransformsF64);

template <>
WeightTransforms<float> weight_transforms() noexcept {
  return HWY_DYNAMIC_DISPATCH(WeightTransformsF32)();
}
template <>
WeightTransforms<double> weight_transforms() noexcept {
  return HWY_DYNAMIC_DISPATCH(WeightTransformsF64)();
}

}  // namespace convolume::conv
#endif  // HWY_ONCE
