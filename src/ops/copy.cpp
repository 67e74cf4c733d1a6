#include "ops/copy.hpp"

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "ops/gather.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/copy.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "hwy/highway.h"

#include "ops/simd-inl.hpp"

#ifndef CONVOLUME_OPS_COPY_KERNELS
#define CONVOLUME_OPS_COPY_KERNELS
namespace convolume::ops {
namespace {
/// The planes of one channel block. The elements of a row are contiguous.
template <class T>
struct Rows {
  T* data;
  index_t stride_z, stride_y;
  T* at(index_t z, index_t y) const { return data + z * stride_z + y * stride_y; }
};

template <class T>
struct CopyKernels {
  /// Computes sum = a + b. `extent` is planes, rows and elements of a row.
  void (*add_rows)(const Extent3& extent, const Rows<const T>& a, const Rows<const T>& b, const Rows<T>& sum);
};
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

CopyKernels<float> copy_kernels_f32() { return {add_rows<float>}; }
CopyKernels<double> copy_kernels_f64() { return {add_rows<double>}; }

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {
namespace {

HWY_EXPORT(copy_kernels_f32);
HWY_EXPORT(copy_kernels_f64);

template <class T>
CopyKernels<T> kernels() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(copy_kernels_f32)();
  } else {
    return HWY_DYNAMIC_DISPATCH(copy_kernels_f64)();
  }
}

template <class T>
Rows<T> rows(const View<T>& view, const Part& part) {
  return {first_of(view, part), view.stride[2], view.stride[3]};
}

/// Returns the planes of a part, their rows, and the elements of a row. If all views are dense, it is one long row.
template <class T>
Extent3 row_extent(const View<T>& view, const Part& part, bool dense) {
  const Extent3 extent{part.z1 - part.z0, view.shape.extent.y, view.shape.extent.x * view.block_channels()};
  return dense ? Extent3{1, 1, extent.z * extent.y * extent.x} : extent;
}

template <class T>
void add_part(const View<const T>& a, const View<const T>& b, const View<T>& y, const Part& part) {
  const Extent3 extent = row_extent(y, part, a.dense_blocks() && b.dense_blocks() && y.dense_blocks());
  kernels<T>().add_rows(extent, rows(a, part), rows(b, part), rows(y, part));
}

template <class T>
void clear_part(const View<T>& view, const Part& part) {
  const Extent3 extent = row_extent(view, part, view.dense_blocks());
  const Rows<T> to = rows(view, part);
  for (index_t z = 0; z < extent.z; ++z) {
    for (index_t y = 0; y < extent.y; ++y) std::fill_n(to.at(z, y), extent.x, T{0});
  }
}

/// Collects the tasks that complete those channels of an origin that fall into a part of the target.
template <class T>
void collect_origin(const Ready& ready, const Origin<T>& origin, const Part& part, std::vector<TaskId>& after) {
  Part read = part;
  read.c0 = std::max<index_t>(0, part.c0 - origin.first);
  read.c1 = std::min(origin.view.shape.c, part.c1 - origin.first);
  if (read.c0 < read.c1) collect_planes(ready, origin.view, read, part.z0, part.z1, after);
}

template <class T>
Ready append_gather(TaskGraph& graph, std::span<const Ready> ready, std::vector<Origin<T>> origins,
                    const View<T>& target, const Ready& target_ready, bool add, const char* name) {
  const Cut parts = gather_cut<T>(origins, target);
  const auto collect = [&](const Part& part, std::vector<TaskId>& after) {
    for (std::size_t k = 0; k < origins.size(); ++k) collect_origin(ready[k], origins[k], part, after);
    collect_planes(target_ready, target, part, part.z0, part.z1, after);
  };
  auto tasks = append_parts(graph, parts, name, bytes_of<T>(add ? 3 : 2), collect,
                            [origins, target, add](const Part& part) { gather<T>(origins, target, part, add); });
  return ready_of(graph, parts, std::move(tasks), target);
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

template <class T>
Ready append_copy(TaskGraph& graph, const Ready& ready, const ConstView<T>& source, const View<T>& target, bool add) {
  const char* name = add ? "copy_add" : "copy";
  require_rows(name, "source", source);
  require_rows(name, "target", target);
  require_shape(name, "target", target.shape, source.shape);
  return append_gather<T>(graph, std::span(&ready, 1), {{source, 0}}, target, ready, add, name);
}

template <class T>
Ready append_concat(TaskGraph& graph, std::span<const Ready> ready, std::span<const ConstView<T>> sources,
                    const View<T>& y) {
  require_rows("concat", "y", y);
  if (ready.size() != sources.size() || sources.empty()) {
    throw InvalidArgument(fmt::format("concat: there are {} sources with {} completions; each source needs one",
                                      sources.size(), ready.size()));
  }
  std::vector<Origin<T>> origins;
  Shape5 joined = y.shape;
  joined.c = 0;
  for (std::size_t k = 0; k < sources.size(); ++k) {
    const std::string name = fmt::format("source {}", k);
    require_rows("concat", name, sources[k]);
    require_shape("concat", name, sources[k].shape, {y.shape.n, sources[k].shape.c, y.shape.extent});
    origins.push_back({sources[k], joined.c});
    joined.c += sources[k].shape.c;
  }
  require_shape("concat", "y", y.shape, joined);
  return append_gather<T>(graph, ready, std::move(origins), y, {}, false, "concat");
}

template <class T>
Ready append_slice(TaskGraph& graph, const Ready& ready, const ConstView<T>& source, index_t first_channel,
                   const View<T>& target, bool add, const Ready& target_ready) {
  const char* name = add ? "slice_add" : "slice";
  require_rows(name, "source", source);
  require_rows(name, "target", target);
  require_shape(name, "target", target.shape, {source.shape.n, target.shape.c, source.shape.extent});
  if (first_channel < 0 || first_channel > source.shape.c - target.shape.c) {
    throw ShapeMismatch(fmt::format("{}: {} channels from channel {} on are not inside the {} channels of the source",
                                    name, target.shape.c, first_channel, source.shape.c));
  }
  return append_gather<T>(graph, std::span(&ready, 1), {{source, -first_channel}}, target, target_ready, add, name);
}

template <class T>
Ready append_add(TaskGraph& graph, const Ready& ready, const ConstView<T>& a, const ConstView<T>& b, const View<T>& y) {
  require_rows("add", "a", a);
  require_rows("add", "b", b);
  require_rows("add", "y", y);
  require_like("add", "b", b, a);
  require_like("add", "y", y, a);
  const Cut parts = cut(y);
  auto tasks = append_parts(graph, parts, "add", bytes_of<T>(3), same_part(ready, a, b, y),
                            [=](const Part& part) { add_part<T>(a, b, y, part); });
  return ready_of(graph, parts, std::move(tasks), y);
}

template <class T>
Ready append_clear(TaskGraph& graph, const Ready& ready, const View<T>& view) {
  require_rows("clear", "view", view);
  const Cut parts = cut(view);
  auto tasks = append_parts(graph, parts, "clear", bytes_of<T>(1), same_part(ready, view),
                            [view](const Part& part) { clear_part(view, part); });
  return ready_of(graph, parts, std::move(tasks), view);
}

template Ready append_copy<float>(TaskGraph&, const Ready&, const ConstView<float>&, const View<float>&, bool);
template Ready append_copy<double>(TaskGraph&, const Ready&, const ConstView<double>&, const View<double>&, bool);
template Ready append_concat<float>(TaskGraph&, std::span<const Ready>, std::span<const ConstView<float>>,
                                    const View<float>&);
template Ready append_concat<double>(TaskGraph&, std::span<const Ready>, std::span<const ConstView<double>>,
                                     const View<double>&);
template Ready append_slice<float>(TaskGraph&, const Ready&, const ConstView<float>&, index_t, const View<float>&, bool,
                                   const Ready&);
template Ready append_slice<double>(TaskGraph&, const Ready&, const ConstView<double>&, index_t, const View<double>&,
                                    bool, const Ready&);
template Ready append_add<float>(TaskGraph&, const Ready&, const ConstView<float>&, const ConstView<float>&,
                                 const View<float>&);
template Ready append_add<double>(TaskGraph&, const Ready&, const ConstView<double>&, const ConstView<double>&,
                                  const View<double>&);
template Ready append_clear<float>(TaskGraph&, const Ready&, const View<float>&);
template Ready append_clear<double>(TaskGraph&, const Ready&, const View<double>&);

}  // namespace convolume::ops
#endif  // HWY_ONCE
