#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/tile_ends.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// Behind it, for its macros.
#include "hwy/cache_control.h"

#include "conv/tile_ends-inl.hpp"
#include "convolume/cpu.hpp"

#ifndef CONVOLUME_CONV_TILE_END_FUNCTIONS
#define CONVOLUME_CONV_TILE_END_FUNCTIONS
namespace convolume::conv {
namespace {

/// The templates of fft/tile-inl.hpp with the ends of this room.
template <class T>
struct TileEndFunctions {
  using Plan = fft::TilePlan<T>;
  void (*transform)(const Plan&, const TileSource<T>&, T*, const fft::TileStrides&, T*);
  void (*transform_planes)(const Plan&, const TileSource<T>&, T*, const fft::TileStrides&, T*);
  void (*stream)(const Plan&, const TileSource<T>&, T*, const fft::TileStrides&, T*);
  void (*invert)(const Plan&, T*, const fft::TileStrides&, const TileTarget<T>&, T*);
  void (*invert_planes)(const Plan&, const T*, const fft::TileStrides&, const TileTarget<T>&, T*);
  void (*stream_copy)(const T*, index_t, T*);
};

}  // namespace
}  // namespace convolume::conv
#endif

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {

template <class T>
void StreamCopy(const T* from, index_t count, T* to) {
  const hn::CappedTag<T, fft::tile_lanes<T>> d;
  const auto step = static_cast<index_t>(hn::Lanes(d));
  for (index_t i = 0; i < count; i += step) hn::Stream(hn::Load(d, from + i), d, to + i);
}

/// Lines along Z, one frequency block after the other, from the L1 past the other caches.
template <class T>
void StreamLines(const fft::TilePlan<T>& plan, const T* planes, T* spectrum, const fft::TileStrides& strides, T* lines,
                 T* scratch) {
  const hn::ScalableTag<T> d;
  const auto step = static_cast<index_t>(hn::Lanes(d));
  const fft::TileStrides from = plane_strides(plan);
  const fft::TileStrides there{
      .block = 0, .frequency = 2 * fft::tile_lanes<T>, .tile = 0, .channel_block = 0, .re_im = fft::tile_lanes<T>};
  for (index_t block = 0; block < plan.blocks(); ++block) {
    plan.forward_lines({planes + block * from.block, lines, from, there}, 1, 0, 0, scratch);
    const T* value = lines;
    T* const first = spectrum + block * strides.block;
    for (index_t z = 0; z < plan.extent().z; ++z) {
      for (index_t part = 0; part < 2; ++part) {
        T* to = first + z * strides.frequency + part * strides.re_im;
        for (index_t lane = 0; lane < fft::tile_lanes<T>; lane += step, value += step) {
          hn::Stream(hn::Load(d, value), d, to + lane);
        }
      }
    }
  }
  hwy::FlushStream();
}

template <class T>
TileEndFunctions<T> Functions() {
  using Plan = fft::TilePlan<T>;
  return {[](const Plan& plan, const TileSource<T>& source, T* spectrum, const fft::TileStrides& strides, T* scratch) {
            tile::ForwardTile(plan, SourceLoad<T>(plan, source), spectrum, strides, scratch);
          },
          [](const Plan& plan, const TileSource<T>& source, T* spectrum, const fft::TileStrides& strides, T* scratch) {
            tile::ForwardPlanes(plan, SourceLoad<T>(plan, source), spectrum, strides, scratch);
          },
          [](const Plan& plan, const TileSource<T>& source, T* spectrum, const fft::TileStrides& strides, T* scratch) {
            T* planes = scratch + plan.scratch_bytes() / sizeof(T);
            T* lines = planes + planes_bytes(plan) / sizeof(T);
            tile::ForwardPlanes(plan, SourceLoad<T>(plan, source), planes, plane_strides(plan), scratch);
            StreamLines(plan, planes, spectrum, strides, lines, scratch);
          },
          [](const Plan& plan, T* spectrum, const fft::TileStrides& strides, const TileTarget<T>& target, T* scratch) {
            tile::InverseTile(plan, spectrum, strides, TargetStore<T>(plan, target), scratch);
          },
          [](const Plan& plan, const T* spectrum, const fft::TileStrides& strides, const TileTarget<T>& target,
             T* scratch) { tile::InversePlanes(plan, spectrum, strides, TargetStore<T>(plan, target), scratch); },
          StreamCopy<T>};
}

void FunctionsFloat(TileEndFunctions<float>& functions) { functions = Functions<float>(); }
void FunctionsDouble(TileEndFunctions<double>& functions) { functions = Functions<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

namespace {

HWY_EXPORT(FunctionsFloat);
HWY_EXPORT(FunctionsDouble);

template <class T>
TileEndFunctions<T> functions() {
  TileEndFunctions<T> result;
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(FunctionsFloat)(result);
  } else {
    HWY_DYNAMIC_DISPATCH(FunctionsDouble)(result);
  }
  return result;
}

}  // namespace

template <class T>
BlockView<T> block_of(const View<T>& tensor, Layout layout, index_t n, index_t first) {
  const index_t block = fft::tile_lanes<std::remove_const_t<T>>;
  const bool blocked = layout == Layout::blocked;
  return {.data = tensor.data + n * tensor.stride[0] + (blocked ? first / block : first) * tensor.stride[1],
          .extent = tensor.shape.extent,
          .channels = std::min(block, tensor.shape.c - first),
          .channel_stride = blocked ? 1 : tensor.stride[1],
          .plane_stride = tensor.stride[2],
          .row_stride = tensor.stride[3],
          .voxel_stride = tensor.stride[4],
          .blocked = blocked};
}
template BlockView<float> block_of(const View<float>&, Layout, index_t, index_t);
template BlockView<const float> block_of(const View<const float>&, Layout, index_t, index_t);
template BlockView<double> block_of(const View<double>&, Layout, index_t, index_t);
template BlockView<const double> block_of(const View<const double>&, Layout, index_t, index_t);

index_t past_caches_from() { return static_cast<index_t>(machine_model().l3_bytes / 8); }

template <class T>
bool writes_past_caches(const View<T>& target, index_t from) {
  constexpr auto size = static_cast<index_t>(sizeof(T));
  const index_t bytes = size * stored_elements(target.shape, target.layout, data_type_of<T>());
  bool aligned = reinterpret_cast<std::uintptr_t>(target.data.get()) % 64 == 0;
  for (const index_t stride : target.stride) aligned = aligned && stride * size % 64 == 0;
  return target.layout == Layout::blocked && aligned && bytes > from;
}
template bool writes_past_caches(const View<float>&, index_t);
template bool writes_past_caches(const View<double>&, index_t);

template <class T>
void transform_tile(const fft::TilePlan<T>& plan, const TileSource<T>& source, T* spectrum,
                    const fft::TileStrides& strides, T* scratch) {
  functions<T>().transform(plan, source, spectrum, strides, scratch);
}
template <class T>
void stream_tile(const fft::TilePlan<T>& plan, const TileSource<T>& source, T* spectrum,
                 const fft::TileStrides& strides, T* scratch) {
  functions<T>().stream(plan, source, spectrum, strides, scratch);
}
template <class T>
void invert_tile(const fft::TilePlan<T>& plan, T* spectrum, const fft::TileStrides& strides,
                 const TileTarget<T>& target, T* scratch) {
  functions<T>().invert(plan, spectrum, strides, target, scratch);
}
template <class T>
void transform_planes(const fft::TilePlan<T>& plan, const TileSource<T>& source, T* spectrum,
                      const fft::TileStrides& strides, T* scratch) {
  functions<T>().transform_planes(plan, source, spectrum, strides, scratch);
}
template <class T>
void invert_planes(const fft::TilePlan<T>& plan, const T* spectrum, const fft::TileStrides& strides,
                   const TileTarget<T>& target, T* scratch) {
  functions<T>().invert_planes(plan, spectrum, strides, target, scratch);
}

template <class T>
void stream_copy(const T* from, index_t count, T* to) {
  functions<T>().stream_copy(from, count, to);
}
void fence_streams() { hwy::FlushStream(); }

#define CONVOLUME_INSTANTIATE(T)                                                                                     \
  template void transform_tile(const fft::TilePlan<T>&, const TileSource<T>&, T*, const fft::TileStrides&, T*);      \
  template void stream_tile(const fft::TilePlan<T>&, const TileSource<T>&, T*, const fft::TileStrides&, T*);         \
  template void invert_tile(const fft::TilePlan<T>&, T*, const fft::TileStrides&, const TileTarget<T>&, T*);         \
  template void transform_planes(const fft::TilePlan<T>&, const TileSource<T>&, T*, const fft::TileStrides&, T*);    \
  template void invert_planes(const fft::TilePlan<T>&, const T*, const fft::TileStrides&, const TileTarget<T>&, T*); \
  template void stream_copy(const T*, index_t, T*)
CONVOLUME_INSTANTIATE(float);
CONVOLUME_INSTANTIATE(double);
#undef CONVOLUME_INSTANTIATE

}  // namespace convolume::conv
#endif  // HWY_ONCE
