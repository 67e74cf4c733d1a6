#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/tensor_io/tile_io.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// This header comes after hwy/highway.h because it needs the macros of that header.
#include "hwy/cache_control.h"

#include "conv/tensor_io/tile_io-inl.hpp"
#include "conv/tensor_io/tile_row-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {

template <class T>
void StreamCopy(const T* from, index_t count, T* to) {
  const hn::CappedTag<T, fft::tile_lanes<T>> d;
  const auto step = static_cast<index_t>(hn::Lanes(d));
  for (index_t i = 0; i < count; i += step) hn::Stream(hn::Load(d, from + i), d, to + i);
}

/// Stores a line along Z.
template <bool non_temporal, class T>
HWY_INLINE void WriteLine(const T* value, index_t points, T* to, const fft::TileStrides& strides) {
  const hn::ScalableTag<T> d;
  const auto step = static_cast<index_t>(hn::Lanes(d));
  for (index_t z = 0; z < points; ++z, to += strides.frequency) {
    for (index_t part = 0; part < 2; ++part) {
      T* const point = to + part * strides.re_im;
      for (index_t lane = 0; lane < fft::tile_lanes<T>; lane += step, value += step) {
        const auto values = hn::Load(d, value);
        non_temporal ? hn::Stream(values, d, point + lane) : hn::Store(values, d, point + lane);
      }
    }
  }
}

/// Transforms lines along Z, some frequency blocks together. The lines stay in the L1 until they are written. The
/// spectrum of a single plane is complete already.
template <bool non_temporal, class T>
void WriteLines(const fft::TilePlan<T>& plan, const T* planes, T* spectrum, const fft::TileStrides& strides, T* lines,
                T* scratch) {
  const fft::TileStrides from = plane_strides(plan);
  const fft::TileStrides there{
      .block = 0, .frequency = 2 * fft::tile_lanes<T>, .tile = 0, .channel_block = 0, .re_im = fft::tile_lanes<T>};
  const index_t points = plan.extent().z, together = streamed_lines(plan);
  const bool planar = points == 1;
  const std::ptrdiff_t line = planar ? from.block : points * there.frequency;
  for (index_t block = 0; block < plan.blocks(); block += together, planes += together * from.block) {
    const index_t count = std::min(together, plan.blocks() - block);
    if (!planar) plan.forward_lines({planes, lines, from, there}, count, from.block, line, scratch);
    for (index_t i = 0; i < count; ++i) {
      WriteLine<non_temporal>((planar ? planes : lines) + i * line, points, spectrum + (block + i) * strides.block,
                              strides);
    }
  }
  if (non_temporal) hwy::FlushStream();
}

/// Transforms planes. Tiles of a blocked tensor are transformed one after the other.
template <class T>
void TransformPlanes(const fft::TilePlan<T>& plan, const TileSource<T>& source, const TileRow& row, T* spectrum,
                     const fft::TileStrides& strides, T* scratch) {
  if (!source.block.blocked && row.step > 0) return TransformStaged(plan, source, row, spectrum, strides, scratch);
  TileSource<T> one = source;
  for (index_t i = 0; i < row.count; ++i, one.origin.x += row.step) {
    tile::ForwardPlanes(plan, SourceLoad<T>(plan, one), spectrum + i * row.spectrum, strides, scratch);
  }
}

/// Transforms planes, and then lines along Z in place.
template <class T>
void Transform(const fft::TilePlan<T>& plan, const TileSource<T>& source, const TileRow& row, T* spectrum,
               const fft::TileStrides& strides, T* scratch) {
  TransformPlanes(plan, source, row, spectrum, strides, scratch);
  for (index_t i = 0; i < row.count; ++i) {
    T* const one = spectrum + i * row.spectrum;
    plan.forward_lines({one, one, strides, strides}, plan.blocks(), strides.block, strides.block, scratch);
  }
}

template <class T>
void Stream(const fft::TilePlan<T>& plan, const TileSource<T>& source, bool non_temporal, T* spectrum,
            const fft::TileStrides& strides, T* scratch) {
  T* planes = scratch + plan.scratch_bytes() / sizeof(T);
  T* lines = planes + planes_bytes(plan) / sizeof(T);
  tile::ForwardPlanes(plan, SourceLoad<T>(plan, source), planes, plane_strides(plan), scratch);
  non_temporal ? WriteLines<true>(plan, planes, spectrum, strides, lines, scratch)
               : WriteLines<false>(plan, planes, spectrum, strides, lines, scratch);
}

/// Inverts planes. A single tile gains nothing from staging, because its rows would not become longer.
template <class T>
void InvertPlanes(const fft::TilePlan<T>& plan, const T* spectrum, const fft::TileStrides& strides,
                  const TileTarget<T>& target, const TileRow& row, T* scratch) {
  if (!target.block.blocked && row.count > 1) {
    return InvertStaged(plan, spectrum, strides, target, row, scratch);
  }
  TileTarget<T> one = target;
  for (index_t i = 0; i < row.count; ++i, one.origin.x += row.step) {
    if (target.fresh != nullptr) one.fresh = target.fresh + i;
    tile::InversePlanes(plan, spectrum + i * row.spectrum, strides, TargetStore<T>(plan, one), scratch);
  }
}

template <class T>
void Invert(const fft::TilePlan<T>& plan, T* spectrum, const fft::TileStrides& strides, const TileTarget<T>& target,
            const TileRow& row, T* scratch) {
  for (index_t i = 0; i < row.count; ++i) {
    T* const one = spectrum + i * row.spectrum;
    plan.inverse_lines({one, one, strides, strides}, plan.blocks(), strides.block, strides.block, scratch);
  }
  InvertPlanes(plan, static_cast<const T*>(spectrum), strides, target, row, scratch);
}

template <class T>
TileIoKernels<T> Kernels() {
  return {.transform = Transform<T>,
          .invert = Invert<T>,
          .transform_planes = TransformPlanes<T>,
          .invert_planes = InvertPlanes<T>,
          .stream = Stream<T>,
          .stream_copy = StreamCopy<T>};
}

TileIoKernels<float> TileIoKernelsF32() { return Kernels<float>(); }
TileIoKernels<double> TileIoKernelsF64() { return Kernels<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

HWY_EXPORT(TileIoKernelsF32);
HWY_EXPORT(TileIoKernelsF64);

template <>
TileIoKernels<float> tile_io_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(TileIoKernelsF32)();
}
template <>
TileIoKernels<double> tile_io_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(TileIoKernelsF64)();
}

void fence_streams() { hwy::FlushStream(); }

}  // namespace convolume::conv
#endif  // HWY_ONCE
