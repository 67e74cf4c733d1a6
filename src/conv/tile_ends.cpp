#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/tile_ends.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "conv/tile_ends-inl.hpp"

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
  void (*invert)(const Plan&, T*, const fft::TileStrides&, const TileTarget<T>&, T*);
  void (*invert_planes)(const Plan&, const T*, const fft::TileStrides&, const TileTarget<T>&, T*);
};

}  // namespace
}  // namespace convolume::conv
#endif

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {

template <class T>
TileEndFunctions<T> Functions() {
  using Plan = fft::TilePlan<T>;
  return {[](const Plan& plan, const TileSource<T>& source, T* spectrum, const fft::TileStrides& strides, T* scratch) {
            tile::ForwardTile(plan, SourceLoad<T>(plan, source), spectrum, strides, scratch);
          },
          [](const Plan& plan, const TileSource<T>& source, T* spectrum, const fft::TileStrides& strides, T* scratch) {
            tile::ForwardPlanes(plan, SourceLoad<T>(plan, source), spectrum, strides, scratch);
          },
          [](const Plan& plan, T* spectrum, const fft::TileStrides& strides, const TileTarget<T>& target, T* scratch) {
            tile::InverseTile(plan, spectrum, strides, TargetStore<T>(plan, target), scratch);
          },
          [](const Plan& plan, const T* spectrum, const fft::TileStrides& strides, const TileTarget<T>& target,
             T* scratch) { tile::InversePlanes(plan, spectrum, strides, TargetStore<T>(plan, target), scratch); }};
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
          .blocked = blocked};
}
template BlockView<float> block_of(const View<float>&, Layout, index_t, index_t);
template BlockView<const float> block_of(const View<const float>&, Layout, index_t, index_t);
template BlockView<double> block_of(const View<double>&, Layout, index_t, index_t);
template BlockView<const double> block_of(const View<const double>&, Layout, index_t, index_t);

template <class T>
void transform_tile(const fft::TilePlan<T>& plan, const TileSource<T>& source, T* spectrum,
                    const fft::TileStrides& strides, T* scratch) {
  functions<T>().transform(plan, source, spectrum, strides, scratch);
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

#define CONVOLUME_INSTANTIATE(T)                                                                                  \
  template void transform_tile(const fft::TilePlan<T>&, const TileSource<T>&, T*, const fft::TileStrides&, T*);   \
  template void invert_tile(const fft::TilePlan<T>&, T*, const fft::TileStrides&, const TileTarget<T>&, T*);      \
  template void transform_planes(const fft::TilePlan<T>&, const TileSource<T>&, T*, const fft::TileStrides&, T*); \
  template void invert_planes(const fft::TilePlan<T>&, const T*, const fft::TileStrides&, const TileTarget<T>&, T*)
CONVOLUME_INSTANTIATE(float);
CONVOLUME_INSTANTIATE(double);
#undef CONVOLUME_INSTANTIATE

}  // namespace convolume::conv
#endif  // HWY_ONCE
