// What the append_* functions share: argument checks, the task per feature map, and tasks over ranges.
#pragma once

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"

namespace convolume::ops {

/// An input view; the element type is deduced from the output beside it, so that a View<T> converts.
template <class T>
using ConstView = std::type_identity_t<View<const T>>;

/// Elements that one task of a reduction sums up; part of the numerics record.
inline constexpr index_t chunk_elements = index_t{1} << 15;

/// Throws ShapeMismatch naming operation and argument where `found` is not `wanted`.
void require_shape(std::string_view op, std::string_view what, const Shape5& found, const Shape5& wanted);
/// Throws InvalidArgument for a null pointer or a shape that has no elements.
void require_data(std::string_view op, std::string_view what, const void* data, const Shape5& shape);
[[noreturn]] void throw_not_dense(std::string_view op, std::string_view what, std::string_view remedy);

/// Throws where the view is null, empty, or its feature maps are not dense.
template <class T>
void require_dense(std::string_view op, std::string_view what, const View<T>& view) {
  require_data(op, what, view.data, view.shape);
  if (!view.dense_blocks()) throw_not_dense(op, what, "dense feature maps");
}

/// Throws where the view is null, empty, or its voxels are not neighbours along X.
template <class T>
void require_rows(std::string_view op, std::string_view what, const View<T>& view) {
  require_data(op, what, view.data, view.shape);
  if (view.stride[4] != 1) throw_not_dense(op, what, "an X stride of 1");
}

/// Adds one task per feature map of `shape`, body(n, c), each after the parts of `ready` with its sample and channel.
/// `first_channel` is the channel of `ready` that channel 0 of the map stands for.
template <class Body>
Ready append_per_map(TaskGraph& graph, const Ready& ready, const Shape5& shape, const char* name, double cost,
                     const Body& body, index_t first_channel = 0) {
  std::vector<TaskId> tasks, after;
  for (index_t n = 0; n < shape.n; ++n) {
    for (index_t c = 0; c < shape.c; ++c) {
      after.clear();
      ready.collect(n, first_channel + c, first_channel + c + 1, after);
      tasks.push_back(graph.add(
          {.name = name, .cost = cost}, [body, n, c] { body(n, c); }, after));
    }
  }
  return Ready::per_channel(std::move(tasks), shape.c);
}

/// Adds tasks over [0, count) in at most 64 ranges, body(begin, end): enough for many workers, few enough to be cheap.
/// `cost` is that of one of `count`.
template <class Body>
std::vector<TaskId> append_ranges(TaskGraph& graph, const char* name, index_t count, double cost,
                                  const std::vector<TaskId>& after, const Body& body) {
  const index_t per_task = (count + 63) / 64;
  std::vector<TaskId> tasks;
  for (index_t begin = 0; begin < count; begin += per_task) {
    const index_t end = std::min(count, begin + per_task);
    tasks.push_back(graph.add(
        {.name = name, .cost = cost * static_cast<double>(end - begin)}, [body, begin, end] { body(begin, end); },
        after));
  }
  return tasks;
}

/// Bytes of `maps` feature maps: the cost of a task that is bound by memory.
template <class T>
double map_bytes(const Extent3& extent, double maps) {
  return static_cast<double>(extent.volume()) * static_cast<double>(sizeof(T)) * maps;
}

}  // namespace convolume::ops
