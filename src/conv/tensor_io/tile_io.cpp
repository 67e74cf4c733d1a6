#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/tensor_io/tile_io.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// This header comes after hwy/highway.h because it needs the macros of that header.
#include "hwy/cache_control.h"

#include "conv/tensor_io/tile_io-inl.hpp"

#ifndef CONVOLUME_CONV_TILE_IO_FUNCTIONS
#define CONVOLUME_CONV_TILE_IO_FUNCTIONS
namespace convolume::conv {
namespace {

/// The templates of fft/tile-inl.hpp, instantiated with the prologues and epilogues of this folder.
template <class T>
struct TileIoFunctions {
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

/// Transforms lines along Z, one frequency block after the other. The lines stay in the L1 and are written with
/// non-temporal stores.
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
TileIoFunctions<T> Functions() {
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

void FunctionsFloat(TileIoFunctions<float>& functions) { functions = Functions<float>(); }
void FunctionsDouble(TileIoFunctions<double>& functions) { functions = Functions<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

namespace {

HWY_EXPORT(FunctionsFloat);
HWY_EXPORT(FunctionsDouble);

template <class T>
TileIoFunctions<T> functions() {
  TileIoFunctions<T> result;
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(FunctionsFloat)(result);
  } else {
    HWY_DYNAMIC_DISPATCH(FunctionsDouble)(result);
  }
  return result;
}

}  // namespace

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
