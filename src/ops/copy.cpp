#include "ops/copy.hpp"

#include <fmt/format.h>

#include "convolume/error.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/copy.cpp"
#include "hwy/foreach_target.h"
// foreach_target comes first.
#include "hwy/highway.h"

#include "ops/simd-inl.hpp"

#ifndef CONVOLUME_OPS_COPY_KERNELS
#define CONVOLUME_OPS_COPY_KERNELS
namespace convolume::ops {
namespace {
/// One feature map with its Z and Y strides; rows are contiguous.
template <class T>
struct Rows {
  T* data;
  index_t stride_z, stride_y;
  T* at(index_t z, index_t y) const { return data + z * stride_z + y * stride_y; }
};
template <class T>
using AddRows = void (*)(const Extent3&, const Rows<const T>& a, const Rows<const T>& b, const Rows<T>& y);
}  // namespace
}  // namespace convolume::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

template <class T>
void add_rows(const Extent3& extent, const Rows<const T>& a, const Rows<const T>& b, const Rows<T>& sum) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  for (index_t z = 0; z < extent.z; ++z) {
    for (index_t y = 0; y < extent.y; ++y) {
      map_elements(
          D(), sum.at(z, y), extent.x, [](V left, V right) HWY_ATTR { return hn::Add(left, right); }, a.at(z, y),
          b.at(z, y));
    }
  }
}

void add_rows_f32(const Extent3& extent, const Rows<const float>& a, const Rows<const float>& b,
                  const Rows<float>& sum) {
  add_rows(extent, a, b, sum);
}
void add_rows_f64(const Extent3& extent, const Rows<const double>& a, const Rows<const double>& b,
                  const Rows<double>& sum) {
  add_rows(extent, a, b, sum);
}

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {
namespace {

HWY_EXPORT(add_rows_f32);
HWY_EXPORT(add_rows_f64);

template <class T>
Rows<T> rows(const View<T>& view, index_t n, index_t c) {
  return {view.channel(n, c), view.stride[2], view.stride[3]};
}

template <class T>
void add_maps(const View<const T>& a, const View<const T>& b, const View<T>& y, index_t n, index_t c) {
  Extent3 extent = y.shape.extent;
  // Dense feature maps are one long row.
  if (a.dense_blocks() && b.dense_blocks() && y.dense_blocks()) extent = {1, 1, extent.z * extent.y * extent.x};
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(add_rows_f32)(extent, rows(a, n, c), rows(b, n, c), rows(y, n, c));
  } else {
    HWY_DYNAMIC_DISPATCH(add_rows_f64)(extent, rows(a, n, c), rows(b, n, c), rows(y, n, c));
  }
}

template <class T>
void copy_map(const View<const T>& source, const View<T>& target, index_t n, index_t c) {
  Extent3 extent = target.shape.extent;
  if (source.dense_blocks() && target.dense_blocks()) extent = {1, 1, extent.z * extent.y * extent.x};
  const Rows<const T> from = rows(source, n, c);
  const Rows<T> to = rows(target, n, c);
  for (index_t z = 0; z < extent.z; ++z) {
    for (index_t y = 0; y < extent.y; ++y) {
      std::memcpy(to.at(z, y), from.at(z, y), static_cast<std::size_t>(extent.x) * sizeof(T));
    }
  }
}

}  // namespace

void require_crop(const Extent3& whole, const Extent3& offset, const Extent3& extent) {
  for (int axis = 0; axis < 3; ++axis) {
    if (offset[axis] < 0 || extent[axis] < 1 || offset[axis] > whole[axis] ||
        extent[axis] > whole[axis] - offset[axis]) {
      throw ShapeMismatch(fmt::format("crop: {} voxels from offset {} are not inside an extent of {}",
                                      to_string(extent), to_string(offset), to_string(whole)));
    }
  }
}

void require_channels(index_t channels, index_t begin, index_t end) {
  if (begin < 0 || begin >= end || end > channels) {
    throw ShapeMismatch(
        fmt::format("channels: [{}, {}) is not a range of the {} channels there are", begin, end, channels));
  }
}

template <class T>
Ready append_copy(TaskGraph& graph, const Ready& ready, const ConstView<T>& source, const View<T>& target, bool add,
                  index_t first_channel) {
  require_rows("copy", "source", source);
  require_rows("copy", "target", target);
  require_shape("copy", "target", target.shape, source.shape);
  return append_per_map(
      graph, ready, target.shape, add ? "copy_add" : "copy", map_bytes<T>(target.shape.extent, add ? 3 : 2),
      [=](index_t n, index_t c) {
        if (add) {
          add_maps<T>(target, source, target, n, c);
        } else {
          copy_map<T>(source, target, n, c);
        }
      },
      first_channel);
}

template <class T>
Ready append_add(TaskGraph& graph, const Ready& ready, const ConstView<T>& a, const ConstView<T>& b, const View<T>& y) {
  require_rows("add", "a", a);
  require_rows("add", "b", b);
  require_rows("add", "y", y);
  require_shape("add", "b", b.shape, a.shape);
  require_shape("add", "y", y.shape, a.shape);
  return append_per_map(graph, ready, y.shape, "add", map_bytes<T>(y.shape.extent, 3),
                        [=](index_t n, index_t c) { add_maps<T>(a, b, y, n, c); });
}

template <class T>
Ready append_fill(TaskGraph& graph, const Ready& ready, const View<T>& view, std::type_identity_t<T> value) {
  require_rows("fill", "view", view);
  return append_per_map(graph, ready, view.shape, "fill", map_bytes<T>(view.shape.extent, 1),
                        [=](index_t n, index_t c) {
                          const Rows<T> to = rows(view, n, c);
                          for (index_t z = 0; z < view.shape.extent.z; ++z) {
                            for (index_t y = 0; y < view.shape.extent.y; ++y) {
                              std::fill_n(to.at(z, y), view.shape.extent.x, value);
                            }
                          }
                        });
}

template Ready append_copy<float>(TaskGraph&, const Ready&, const ConstView<float>&, const View<float>&, bool, index_t);
template Ready append_copy<double>(TaskGraph&, const Ready&, const ConstView<double>&, const View<double>&, bool,
                                   index_t);
template Ready append_add<float>(TaskGraph&, const Ready&, const ConstView<float>&, const ConstView<float>&,
                                 const View<float>&);
template Ready append_add<double>(TaskGraph&, const Ready&, const ConstView<double>&, const ConstView<double>&,
                                  const View<double>&);
template Ready append_fill<float>(TaskGraph&, const Ready&, const View<float>&, float);
template Ready append_fill<double>(TaskGraph&, const Ready&, const View<double>&, double);

}  // namespace convolume::ops
#endif  // HWY_ONCE
