#include "ops/sampling.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/sampling.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "hwy/highway.h"

#include "ops/random-inl.hpp"
#include "ops/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using V = hn::Vec<D>;
using VI = hn::Vec<DI>;

/// The voxel below a place along an axis, the distance to the next voxel (0 at the end), and the share of that voxel.
struct Cell {
  VI first, step;
  V share;
};

HWY_INLINE V clamped(V place, index_t extent) {
  const D d;
  // The comparison also sends NaN to 0.
  const V above = hn::IfThenElseZero(hn::Gt(place, hn::Zero(d)), place);
  return hn::Min(above, hn::Set(d, static_cast<float>(extent - 1)));
}

HWY_INLINE Cell cell_of(V place, index_t extent, index_t stride) {
  const D d;
  const DI di;
  const V inside = clamped(place, extent);
  const VI below = hn::ConvertTo(di, inside);
  const VI units = hn::Set(di, static_cast<std::int32_t>(stride));
  const auto last = hn::Lt(below, hn::Set(di, static_cast<std::int32_t>(extent - 1)));
  return {hn::Mul(below, units), hn::IfThenElseZero(last, units), hn::Sub(inside, hn::ConvertTo(d, below))};
}

/// Returns the offset of the voxel that is nearest along an axis; halves are rounded up.
HWY_INLINE VI nearest_of(V place, index_t extent, index_t stride) {
  const DI di;
  const V inside = clamped(hn::Floor(hn::Add(place, hn::Set(D(), 0.5f))), extent);
  return hn::Mul(hn::ConvertTo(di, inside), hn::Set(di, static_cast<std::int32_t>(stride)));
}

HWY_INLINE V between(V a, V b, V share) { return hn::MulAdd(hn::Sub(b, a), share, a); }

HWY_INLINE V in_slice(const float* voxels, VI at, const Cell& y, const Cell& x) {
  const D d;
  const VI right = hn::Add(at, x.step), below = hn::Add(at, y.step);
  const V upper = between(hn::GatherIndex(d, voxels, at), hn::GatherIndex(d, voxels, right), x.share);
  const V lower =
      between(hn::GatherIndex(d, voxels, below), hn::GatherIndex(d, voxels, hn::Add(right, y.step)), x.share);
  return between(upper, lower, y.share);
}

/// The offsets of the four voxels around a place along an axis, and their weights.
struct Taps {
  VI at[4];
  V weight[4];
};

/// Returns the taps of a cubic convolution with a = -0.5 (Keys, "Cubic convolution interpolation for digital image
/// processing", 1981). At a voxel, its weight is exactly 1 and the others are 0.
HWY_INLINE Taps taps_of(V place, index_t extent, index_t stride) {
  const D d;
  const DI di;
  const V inside = clamped(place, extent);
  const VI below = hn::ConvertTo(di, inside), last = hn::Set(di, static_cast<std::int32_t>(extent - 1));
  const VI units = hn::Set(di, static_cast<std::int32_t>(stride));
  const V t = hn::Sub(inside, hn::ConvertTo(d, below)), half = hn::Set(d, 0.5f);
  const V squared = hn::Mul(t, t);
  Taps taps;
  for (std::int32_t k = 0; k < 4; ++k) {
    const VI voxel = hn::Add(below, hn::Set(di, k - 1));
    taps.at[k] = hn::Mul(hn::Min(hn::Max(voxel, hn::Zero(di)), last), units);
  }
  taps.weight[0] = hn::Mul(t, hn::NegMulAdd(t, hn::MulSub(half, t, hn::Set(d, 1.0f)), hn::Neg(half)));
  taps.weight[1] = hn::MulAdd(squared, hn::MulSub(hn::Set(d, 1.5f), t, hn::Set(d, 2.5f)), hn::Set(d, 1.0f));
  taps.weight[2] = hn::Mul(t, hn::MulAdd(t, hn::NegMulAdd(hn::Set(d, 1.5f), t, hn::Set(d, 2.0f)), half));
  taps.weight[3] = hn::Mul(squared, hn::MulSub(half, t, half));
  return taps;
}

HWY_INLINE V cubic_in_slice(const float* voxels, VI slice, const Taps& y, const Taps& x) {
  const D d;
  V sum = hn::Zero(d);
  for (int j = 0; j < 4; ++j) {
    const VI row = hn::Add(slice, y.at[j]);
    V along_x = hn::Zero(d);
    for (int k = 0; k < 4; ++k) {
      along_x = hn::MulAdd(x.weight[k], hn::GatherIndex(d, voxels, hn::Add(row, x.at[k])), along_x);
    }
    sum = hn::MulAdd(y.weight[j], along_x, sum);
  }
  return sum;
}

HWY_INLINE V cubic(const float* voxels, const Taps& z, const Taps& y, const Taps& x) {
  V sum = hn::Zero(D());
  for (int i = 0; i < 4; ++i) sum = hn::MulAdd(z.weight[i], cubic_in_slice(voxels, z.at[i], y, x), sum);
  return sum;
}

template <Interpolation how>
void sample(const float* voxels, const Extent3& e, const float* z, const float* y, const float* x, float* to,
            index_t n) {
  const D d;
  const index_t lanes = lanes_of(d), row = e.x, plane = e.y * e.x;
  for (index_t i = 0; i < n; i += lanes) {
    const index_t count = std::min(lanes, n - i);
    const V at_z = load_lanes(d, z + i, count), at_y = load_lanes(d, y + i, count), at_x = load_lanes(d, x + i, count);
    V value;
    if constexpr (how == Interpolation::nearest) {
      const VI at =
          hn::Add(hn::Add(nearest_of(at_z, e.z, plane), nearest_of(at_y, e.y, row)), nearest_of(at_x, e.x, 1));
      value = hn::GatherIndex(d, voxels, at);
    } else if constexpr (how == Interpolation::cubic) {
      value = cubic(voxels, taps_of(at_z, e.z, plane), taps_of(at_y, e.y, row), taps_of(at_x, e.x, 1));
    } else if constexpr (how == Interpolation::cubic_in_slice) {
      value = cubic_in_slice(voxels, nearest_of(at_z, e.z, plane), taps_of(at_y, e.y, row), taps_of(at_x, e.x, 1));
    } else {
      const Cell cell_y = cell_of(at_y, e.y, row), cell_x = cell_of(at_x, e.x, 1);
      const VI in_plane = hn::Add(cell_y.first, cell_x.first);
      if constexpr (how == Interpolation::linear_in_slice) {
        value = in_slice(voxels, hn::Add(in_plane, nearest_of(at_z, e.z, plane)), cell_y, cell_x);
      } else {
        const Cell cell_z = cell_of(at_z, e.z, plane);
        const VI at = hn::Add(in_plane, cell_z.first);
        value = between(in_slice(voxels, at, cell_y, cell_x),
                        in_slice(voxels, hn::Add(at, cell_z.step), cell_y, cell_x), cell_z.share);
      }
    }
    store_lanes(value, d, to + i, count);
  }
}

void sample_row_(Interpolation how, const float* voxels, const Extent3& e, const float* z, const float* y,
                 const float* x, float* to, index_t n) {
  switch (how) {
    case Interpolation::nearest:
      return sample<Interpolation::nearest>(voxels, e, z, y, x, to, n);
    case Interpolation::linear:
      return sample<Interpolation::linear>(voxels, e, z, y, x, to, n);
    case Interpolation::linear_in_slice:
      return sample<Interpolation::linear_in_slice>(voxels, e, z, y, x, to, n);
    case Interpolation::cubic:
      return sample<Interpolation::cubic>(voxels, e, z, y, x, to, n);
    case Interpolation::cubic_in_slice:
      return sample<Interpolation::cubic_in_slice>(voxels, e, z, y, x, to, n);
  }
}

void scale_and_shift_(float* v, index_t n, float factor, float offset) {
  const D d;
  const V a = hn::Set(d, factor), b = hn::Set(d, offset);
  map_elements(
      d, v, n, [=](V x) HWY_ATTR { return hn::MulAdd(x, a, b); }, static_cast<const float*>(v));
}

/// Writes the normal numbers of whole counters: numbers of `count` words, a multiple of four.
void normals(const std::uint32_t* words, float* to, index_t count) {
  // Radius and angle come from neighbouring words. Pairs are computed twice, once for the cosine and once for the sine,
  // so that lanes need not be exchanged.
  const D d;
  HWY_ALIGN float radius_from[hn::MaxLanes(D())], angle_from[hn::MaxLanes(D())];
  const index_t lanes = lanes_of(d);
  for (index_t i = 0; i < count; i += lanes) {
    const index_t some = std::min(lanes, count - i);
    for (index_t k = 0; k < lanes; ++k) {
      const index_t pair = (i + std::min(k, some - 1)) & ~index_t{1};
      // The upper 24 bits are exact as float. The radius needs a number above 0.
      radius_from[k] = static_cast<float>((words[pair] >> 8) + 1) * 0x1p-24f;
      angle_from[k] = static_cast<float>(words[pair + 1] >> 8) * 0x1p-24f;
      // sin(2 pi t) = cos(2 pi (t - 1/4))
      if ((i + k) % 2 == 1) angle_from[k] -= 0.25f;
    }
    const V radius = hn::Sqrt(hn::Mul(hn::Set(d, -2.0f), hn::Log(d, hn::Load(d, radius_from))));
    const V angle = hn::Mul(hn::Set(d, 6.28318530717958648f), hn::Load(d, angle_from));
    store_lanes(hn::Mul(radius, hn::Cos(d, angle)), d, to + i, some);
  }
}

void add_noise_(float* v, index_t n, float sigma, const RandomKey& key, std::uint64_t first) {
  constexpr index_t block = 256;
  HWY_ALIGN std::uint32_t words[block];
  HWY_ALIGN float noise[block];
  const D d;
  const V factor = hn::Set(d, sigma);
  for (index_t i = 0; i < n; i += block) {
    const index_t count = std::min(block, n - i);
    random_words(key, first + static_cast<std::uint64_t>(i / 4), words, count);
    normals(words, noise, (count + 3) / 4 * 4);
    map_elements(
        d, v + i, count, [=](V x, V z) HWY_ATTR { return hn::MulAdd(z, factor, x); }, static_cast<const float*>(v + i),
        static_cast<const float*>(noise));
  }
}

void apply_gamma_(float* v, index_t n, float least, float range, float gamma) {
  const D d;
  const V low = hn::Set(d, least), width = hn::Set(d, range), power = hn::Set(d, gamma),
          inverse = hn::Set(d, 1 / range);
  const V tiny = hn::Set(d, 1e-30f);
  map_elements(
      d, v, n,
      [=](V x) HWY_ATTR {
        const V unit = hn::Min(hn::Max(hn::Mul(hn::Sub(x, low), inverse), tiny), hn::Set(d, 1.0f));
        return hn::MulAdd(hn::Exp(d, hn::Mul(power, hn::Log(d, unit))), width, low);
      },
      static_cast<const float*>(v));
}

ValueRange range_of_(const float* v, index_t n) {
  const D d;
  const index_t lanes = lanes_of(d);
  LaneSum<D> sum;
  V least = hn::Set(d, v[0]), largest = least;
  for (index_t i = 0; i < n; i += lanes) {
    const index_t count = std::min(lanes, n - i);
    const V x = load_lanes(d, v + i, count);
    sum.add(x);  // lanes without an element hold 0
    const auto some = hn::FirstN(d, static_cast<std::size_t>(count));
    least = hn::Min(least, hn::IfThenElse(some, x, least));
    largest = hn::Max(largest, hn::IfThenElse(some, x, largest));
  }
  return {sum.total() / static_cast<double>(n), hn::GetLane(hn::MinOfLanes(d, least)),
          hn::GetLane(hn::MaxOfLanes(d, largest))};
}

void filter_(const float* from, index_t stride, const float* weights, index_t radius, float* to, index_t n) {
  const D d;
  const index_t lanes = lanes_of(d);
  for (index_t i = 0; i < n; i += lanes) {
    const index_t count = std::min(lanes, n - i);
    V sum = hn::Mul(hn::Set(d, weights[0]), load_lanes(d, from + i, count));
    for (index_t k = 1; k <= radius; ++k) {
      const V both = hn::Add(load_lanes(d, from + i - k * stride, count), load_lanes(d, from + i + k * stride, count));
      sum = hn::MulAdd(hn::Set(d, weights[k]), both, sum);
    }
    store_lanes(sum, d, to + i, count);
  }
}

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {

HWY_EXPORT(sample_row_);
HWY_EXPORT(scale_and_shift_);
HWY_EXPORT(add_noise_);
HWY_EXPORT(apply_gamma_);
HWY_EXPORT(range_of_);
HWY_EXPORT(filter_);

void sample_row(Interpolation interpolation, const float* voxels, const Extent3& extent, const float* z, const float* y,
                const float* x, float* to, index_t n) noexcept {
  HWY_DYNAMIC_DISPATCH(sample_row_)(interpolation, voxels, extent, z, y, x, to, n);
}
void scale_and_shift(float* v, index_t n, float factor, float offset) noexcept {
  HWY_DYNAMIC_DISPATCH(scale_and_shift_)(v, n, factor, offset);
}
void add_noise(float* v, index_t n, float sigma, const RandomKey& key, std::uint64_t first) noexcept {
  HWY_DYNAMIC_DISPATCH(add_noise_)(v, n, sigma, key, first);
}
void apply_gamma(float* v, index_t n, float least, float range, float gamma) noexcept {
  HWY_DYNAMIC_DISPATCH(apply_gamma_)(v, n, least, range, gamma);
}
ValueRange range_of(const float* v, index_t n) noexcept { return HWY_DYNAMIC_DISPATCH(range_of_)(v, n); }
void filter(const float* from, index_t stride, const float* weights, index_t radius, float* to, index_t n) noexcept {
  HWY_DYNAMIC_DISPATCH(filter_)(from, stride, weights, radius, to, n);
}

}  // namespace convolume::ops
#endif
