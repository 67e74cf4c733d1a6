#include "ops/append.hpp"

#include <limits>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::ops {

void require_shape(std::string_view op, std::string_view what, const Shape5& found, const Shape5& wanted) {
  if (found == wanted) return;
  throw ShapeMismatch(
      fmt::format("{}: the shape of {} is {}, but it must be {}", op, what, to_string(found), to_string(wanted)));
}

void require_layout(std::string_view op, std::string_view what, Layout found, Layout wanted) {
  if (found == wanted) return;
  throw ShapeMismatch(fmt::format("{}: the layout of {} is {}, but it must be {}; convert it with append_copy", op,
                                  what, name_of(found), name_of(wanted)));
}

void require_data(std::string_view op, std::string_view what, bool bound, const Shape5& shape) {
  if (shape.n < 1 || shape.c < 1 || shape.extent.z < 1 || shape.extent.y < 1 || shape.extent.x < 1) {
    throw InvalidArgument(fmt::format("{}: {} has no elements: its shape is {}", op, what, to_string(shape)));
  }
  if (!bound) throw InvalidArgument(fmt::format("{}: {} has no data: bind a tensor to it", op, what));
}

void throw_not_dense(std::string_view op, std::string_view what, std::string_view remedy) {
  throw InvalidArgument(
      fmt::format("{}: the strides of {} are not supported: it needs {}; copy it first", op, what, remedy));
}

Cut cut(const Shape5& shape, index_t block_channels, index_t elements) {
  Cut result;
  result.samples = shape.n;
  result.channels = shape.c;
  result.block_channels = block_channels;
  result.blocks = (shape.c + block_channels - 1) / block_channels;
  result.depth = shape.extent.z;
  // The Z ranges of a block have about equal sizes, so that no task is too small.
  const index_t most =
      std::clamp<index_t>(slab_elements / std::max<index_t>(1, elements / result.depth), 1, result.depth);
  result.slabs = (result.depth + most - 1) / most;
  result.planes = (result.depth + result.slabs - 1) / result.slabs;
  result.slabs = (result.depth + result.planes - 1) / result.planes;
  result.plane_elements = static_cast<double>(elements) / static_cast<double>(result.depth);
  return result;
}

Part part_of(const Cut& cut, index_t n, index_t block, index_t slab) {
  return {.n = n,
          .block = block,
          .c0 = block * cut.block_channels,
          .c1 = std::min(cut.channels, (block + 1) * cut.block_channels),
          .z0 = slab * cut.planes,
          .z1 = std::min(cut.depth, (slab + 1) * cut.planes)};
}

Ready ready_of(TaskGraph& graph, const Cut& cut, std::vector<TaskId> tasks, bool whole_depth) {
  if (whole_depth) return {std::move(tasks), cut.blocks, cut.slabs, cut.block_channels, cut.planes};
  // A cropped view does not know which planes of its tensor it holds. Therefore the Z ranges of a block together
  // complete all planes.
  std::vector<TaskId> joined;
  if (cut.slabs == 1) {
    joined = std::move(tasks);
  } else {
    const auto slabs = static_cast<std::size_t>(cut.slabs);
    for (std::size_t i = 0; i < tasks.size(); i += slabs) {
      joined.push_back(graph.add(
          {.name = "slabs of a crop", .cost = 0}, [] {}, std::span(tasks).subspan(i, slabs)));
    }
  }
  return {std::move(joined), cut.blocks, 1, cut.block_channels, std::numeric_limits<index_t>::max()};
}

}  // namespace convolume::ops
