#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/tile_ends.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "conv/tile_ends-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {

template <class T>
void Transform(const fft::TilePlan<T>& plan, const TileSource<T>& source, T* spectrum, const fft::TileStrides& strides,
               T* scratch) {
  tile::ForwardTile(plan, SourceLoad<T>(plan, source), spectrum, strides, scratch);
}
template <class T>
void Invert(const fft::TilePlan<T>& plan, T* spectrum, const fft::TileStrides& strides, const TileTarget<T>& target,
            T* scratch) {
  tile::InverseTile(plan, spectrum, strides, TargetStore<T>(plan, target), scratch);
}

void TransformFloat(const fft::TilePlan<float>& plan, const TileSource<float>& source, float* spectrum,
                    const fft::TileStrides& strides, float* scratch) {
  Transform(plan, source, spectrum, strides, scratch);
}
void TransformDouble(const fft::TilePlan<double>& plan, const TileSource<double>& source, double* spectrum,
                     const fft::TileStrides& strides, double* scratch) {
  Transform(plan, source, spectrum, strides, scratch);
}
void InvertFloat(const fft::TilePlan<float>& plan, float* spectrum, const fft::TileStrides& strides,
                 const TileTarget<float>& target, float* scratch) {
  Invert(plan, spectrum, strides, target, scratch);
}
void InvertDouble(const fft::TilePlan<double>& plan, double* spectrum, const fft::TileStrides& strides,
                  const TileTarget<double>& target, double* scratch) {
  Invert(plan, spectrum, strides, target, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

HWY_EXPORT(TransformFloat);
HWY_EXPORT(TransformDouble);
HWY_EXPORT(InvertFloat);
HWY_EXPORT(InvertDouble);

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

template <>
void transform_tile(const fft::TilePlan<float>& plan, const TileSource<float>& source, float* spectrum,
                    const fft::TileStrides& strides, float* scratch) {
  HWY_DYNAMIC_DISPATCH(TransformFloat)(plan, source, spectrum, strides, scratch);
}
template <>
void transform_tile(const fft::TilePlan<double>& plan, const TileSource<double>& source, double* spectrum,
                    const fft::TileStrides& strides, double* scratch) {
  HWY_DYNAMIC_DISPATCH(TransformDouble)(plan, source, spectrum, strides, scratch);
}
template <>
void invert_tile(const fft::TilePlan<float>& plan, float* spectrum, const fft::TileStrides& strides,
                 const TileTarget<float>& target, float* scratch) {
  HWY_DYNAMIC_DISPATCH(InvertFloat)(plan, spectrum, strides, target, scratch);
}
template <>
void invert_tile(const fft::TilePlan<double>& plan, double* spectrum, const fft::TileStrides& strides,
                 const TileTarget<double>& target, double* scratch) {
  HWY_DYNAMIC_DISPATCH(InvertDouble)(plan, spectrum, strides, target, scratch);
}

}  // namespace convolume::conv
#endif  // HWY_ONCE
