// Shared code of the append_* functions: argument checks, the parts of a tensor, and tasks per part and over ranges.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"

namespace convolume::ops {

/// A view of an input. The element type is deduced from the output view, so that a View<T> converts.
template <class T>
using ConstView = std::type_identity_t<View<const T>>;

/// Elements that one task of a loss sums. Part of the numerics record.
inline constexpr index_t chunk_elements = index_t{1} << 15;
/// Approximate number of elements of the larger tensor, pad lanes included, that one task of any other operation
/// handles. In float this is a quarter of a MiB, which fits into the L2. Part of the numerics record, because group
/// norm sums over these parts.
inline constexpr index_t slab_elements = index_t{1} << 16;

/// Throw ShapeMismatch that names the operation and the argument if `found` differs from `wanted`.
void require_shape(std::string_view op, std::string_view what, const Shape5& found, const Shape5& wanted);
void require_layout(std::string_view op, std::string_view what, Layout found, Layout wanted);
/// Throws InvalidArgument if no memory is bound or the shape has no elements.
void require_data(std::string_view op, std::string_view what, bool bound, const Shape5& shape);
[[noreturn]] void throw_not_dense(std::string_view op, std::string_view what, std::string_view remedy);

/// Throws if the view is null or empty, or if its channel blocks are not dense.
template <class T>
void require_dense(std::string_view op, std::string_view what, const View<T>& view) {
  require_data(op, what, view.data.bound(), view.shape);
  if (!view.dense_blocks()) throw_not_dense(op, what, "dense channel blocks");
}

/// Throws if the view is null or empty, or if its voxels are not neighbours along X.
template <class T>
void require_rows(std::string_view op, std::string_view what, const View<T>& view) {
  require_data(op, what, view.data.bound(), view.shape);
  if (view.stride[4] != view.block_channels()) throw_not_dense(op, what, "voxels side by side along X");
}

/// Throws if the shape or the layout differs from that of the view `wanted`.
template <class T, class U>
void require_like(std::string_view op, std::string_view what, const View<T>& view, const View<U>& wanted) {
  require_shape(op, what, view.shape, wanted.shape);
  require_layout(op, what, view.layout, wanted.layout);
}

/// Returns whether the view holds all planes of its tensor. Then its plane numbers are those that a Ready uses.
template <class T>
bool whole_depth(const View<T>& view) {
  return view.stride[1] == view.shape.extent.z * view.stride[2];
}

/// The division of a tensor into parts, one task each, in the order [sample][channel block][Z range]. It depends only
/// on shape and layout.
struct Cut {
  index_t samples = 0, channels = 0, block_channels = 1, blocks = 0;
  index_t depth = 0, planes = 0, slabs = 0;  ///< planes of a Z range (the last may have fewer); number of Z ranges
  double plane_elements = 0;                 ///< elements of the larger tensor per plane of this one
};

/// A part of a tensor: what one task of an operation handles, a Z range of a channel block of a sample.
struct Part {
  index_t n, block;
  index_t c0, c1;  ///< its channels
  index_t z0, z1;  ///< its planes
};

/// Divides a tensor into blocks of `block_channels` channels. `elements` is what a block of the operation's larger
/// tensor stores.
Cut cut(const Shape5& shape, index_t block_channels, index_t elements);
template <class T>
Cut cut(const View<T>& view) {
  return cut(view.shape, view.block_channels(), view.shape.extent.volume() * view.block_channels());
}

Part part_of(const Cut& cut, index_t n, index_t block, index_t slab);

/// Returns the address of voxel 0 of the first plane of a part.
template <class T>
T* first_of(const View<T>& view, const Part& part) {
  return view.block(part.n, part.block) + part.z0 * view.stride[2];
}
/// Returns the number of elements of a part of a view with dense channel blocks.
template <class T>
index_t elements_of(const View<T>& view, const Part& part) {
  return (part.z1 - part.z0) * view.stride[2];
}

/// Adds one task body(part) per part, after the tasks that collect(part, after) appends. `bytes` is the number of bytes
/// moved per element of the larger tensor; it gives the cost of the memory-bound tasks.
template <class Collect, class Body>
std::vector<TaskId> append_parts(TaskGraph& graph, const Cut& cut, const char* name, double bytes,
                                 const Collect& collect, Body body) {
  const auto shared = std::make_shared<const Body>(std::move(body));
  std::vector<TaskId> tasks, after;
  for (index_t n = 0; n < cut.samples; ++n) {
    for (index_t block = 0; block < cut.blocks; ++block) {
      for (index_t slab = 0; slab < cut.slabs; ++slab) {
        const Part part = part_of(cut, n, block, slab);
        after.clear();
        collect(part, after);
        const double cost = bytes * cut.plane_elements * static_cast<double>(part.z1 - part.z0);
        tasks.push_back(graph.add(
            {.name = name, .cost = cost, .bytes = cost}, [shared, part] { (*shared)(part); }, after));
      }
    }
  }
  return tasks;
}

/// Appends the tasks that complete the channels of a part and the planes [z0, z1) of a view, or all planes if the view
/// is cropped along Z.
template <class T>
void collect_planes(const Ready& ready, const View<T>& view, const Part& part, index_t z0, index_t z1,
                    std::vector<TaskId>& after) {
  if (whole_depth(view)) {
    ready.collect(part.n, part.c0, part.c1, z0, z1, after);
  } else {
    ready.collect(part.n, part.c0, part.c1, after);
  }
}

/// Returns a function that collects the tasks which complete a part of views of the same shape.
template <class... Views>
auto same_part(const Ready& ready, const Views&... views) {
  return [&ready, whole = (whole_depth(views) && ...)](const Part& part, std::vector<TaskId>& after) {
    if (whole) {
      ready.collect(part.n, part.c0, part.c1, part.z0, part.z1, after);
    } else {
      ready.collect(part.n, part.c0, part.c1, after);
    }
  };
}

Ready ready_of(TaskGraph& graph, const Cut& cut, std::vector<TaskId> tasks, bool whole_depth);

/// Returns which parts of `target` the tasks complete.
template <class T>
Ready ready_of(TaskGraph& graph, const Cut& cut, std::vector<TaskId> tasks, const View<T>& target) {
  return ready_of(graph, cut, std::move(tasks), whole_depth(target));
}

/// Returns the bytes of `elements` elements, for append_parts.
template <class T>
constexpr double bytes_of(int elements) {
  return static_cast<double>(sizeof(T)) * elements;
}

/// Sets the lanes of a channel block that hold none of its `channels` channels to zero.
template <class T>
void clear_pad_lanes(T* block, index_t channels, index_t voxels) noexcept {
  constexpr index_t lanes = View<T>::lanes;
  for (index_t v = 0; v < voxels; ++v) std::fill(block + v * lanes + channels, block + (v + 1) * lanes, T{0});
}

/// Returns how many of `count` numbers a task of append_ranges() takes.
constexpr index_t numbers_per_task(index_t count, index_t least = 1) { return std::max(least, (count + 63) / 64); }

/// Adds tasks body(begin, end) over at most 64 ranges of [0, count): enough for many workers, and few enough to be
/// cheap. `cost` is the cost of one of `count`; each task holds `scratch_bytes`. All ranges but the last have at least
/// `least` numbers.
template <class Body>
std::vector<TaskId> append_ranges(TaskGraph& graph, const char* name, index_t count, double cost,
                                  const std::vector<TaskId>& after, const Body& body, std::size_t scratch_bytes = 0,
                                  index_t least = 1) {
  const index_t per_task = numbers_per_task(count, least);
  std::vector<TaskId> tasks;
  for (index_t begin = 0; begin < count; begin += per_task) {
    const index_t end = std::min(count, begin + per_task);
    tasks.push_back(graph.add(
        {.name = name, .cost = cost * static_cast<double>(end - begin), .scratch_bytes = scratch_bytes},
        [body, begin, end] { body(begin, end); }, after));
  }
  return tasks;
}

}  // namespace convolume::ops
