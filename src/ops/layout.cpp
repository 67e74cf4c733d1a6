#include "ops/layout.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include "convolume/convert.hpp"
#include "convolume/cpu.hpp"
#include "core/checked.hpp"
#include "ops/copy.hpp"
#include "ops/gather.hpp"

namespace convolume::ops {
namespace {

/// Elements that a task converts at a time. They stay in the L1.
constexpr index_t staged_elements = 2048;

/// Returns whether gather() can read or write the view.
template <class T>
bool has_rows(const View<T>& view) {
  return view.stride[4] == view.block_channels();
}

/// Returns the channels and planes of a part as a view of one sample.
template <class T>
View<T> view_of(View<T> view, const Part& part) {
  view.data += part.n * view.stride[0] + part.c0 / view.block_channels() * view.stride[1] + part.z0 * view.stride[2];
  view.shape = {1, part.c1 - part.c0, {part.z1 - part.z0, view.shape.extent.y, view.shape.extent.x}};
  return view;
}

/// Copies a row of voxels of one sample.
template <class T>
void copy_row(const View<const T>& from, const View<T>& to) {
  const Origin<T> origin{from, 0};
  const index_t channels = to.shape.c;
  if (has_rows(from) && has_rows(to)) {
    const index_t block = to.layout == Layout::plain ? channels : View<T>::lanes;
    for (index_t c = 0; c < channels; c += block) {
      const Part part{.n = 0, .block = c / block, .c0 = c, .c1 = std::min(channels, c + block), .z0 = 0, .z1 = 1};
      gather<T>(std::span(&origin, 1), to, part, false);
    }
    return;
  }
  for (index_t x = 0; x < to.shape.extent.x; ++x) {
    for (index_t c = 0; c < channels; ++c) to(0, c, 0, 0, x) = from(0, c, 0, 0, x);
  }
}

/// Converts a part by way of plain feature maps in the L1, which change their type there.
template <class S, class T>
void convert_part(const View<const S>& whole_source, const View<T>& whole_target, const Part& part) {
  View<const S> source = view_of(whole_source, part);
  View<T> target = view_of(whole_target, part);
  if (source.dense_blocks() && target.dense_blocks()) {  // one long row
    source.shape.extent = target.shape.extent = {1, 1, source.shape.extent.volume()};
  }
  const Extent3 extent = target.shape.extent;
  const index_t channels = target.shape.c, most = staged_elements / channels;
  alignas(64) std::array<S, staged_elements> loaded;
  alignas(64) std::array<T, staged_elements> converted;
  for (index_t z = 0; z < extent.z; ++z) {
    for (index_t y = 0; y < extent.y; ++y) {
      for (index_t x = 0; x < extent.x; x += most) {
        const Extent3 offset{z, y, x}, voxels{1, 1, std::min(most, extent.x - x)};
        const Shape5 staged{1, channels, voxels};
        copy_row<S>(crop(source, offset, voxels), View<S>(loaded.data(), staged));
        std::transform(loaded.begin(), loaded.begin() + channels * voxels.x, converted.begin(),
                       [](S value) { return static_cast<T>(value); });
        copy_row<T>(View<const T>(converted.data(), staged), crop(target, offset, voxels));
      }
    }
  }
}

template <class S, class T>
Ready append_typed(TaskGraph& graph, const Ready& ready, const View<const S>& source, const View<T>& target) {
  const bool rows = has_rows(source) && has_rows(target);
  if constexpr (std::is_same_v<S, T>) {
    if (rows) return append_copy<T>(graph, ready, source, target, false);
  }
  // A task handles whole blocks of both tensors. Channels that lie side by side are handled together.
  const index_t block = rows ? std::max(source.block_channels(), target.block_channels()) : View<float>::lanes;
  const Cut parts = cut(target.shape, block, target.shape.extent.volume() * block);
  auto tasks = append_parts(graph, parts, "convert", sizeof(S) + sizeof(T), same_part(ready, source, target),
                            [source, target](const Part& part) { convert_part(source, target, part); });
  return ready_of(graph, parts, std::move(tasks), target);
}

/// The bytes of a view relative to its address: from its first element to behind its last.
struct ByteRange {
  index_t begin, end;
};

std::array<index_t, 5> counts_of(const ConstTensorView& view) {
  const Extent3& extent = view.shape.extent;
  return {view.shape.n, view.blocks(), extent.z, extent.y, extent.x};
}

ByteRange byte_range(const ConstTensorView& view) {
  const std::array<index_t, 5> counts = counts_of(view);
  ByteRange elements{0, view.block_channels()};
  for (std::size_t axis = 0; axis < counts.size(); ++axis) {
    const index_t reach = checked_mul(counts[axis] - 1, view.stride[axis], "strides of a tensor");
    index_t& bound = reach < 0 ? elements.begin : elements.end;
    bound = checked_add(bound, reach, "strides of a tensor");
  }
  const auto size = static_cast<index_t>(size_of(view.type));
  return {checked_mul(elements.begin, size, "tensor"), checked_mul(elements.end, size, "tensor")};
}

void check_view(const char* what, const ConstTensorView& view) {
  require_data("convert", what, bool(view), view.shape);
  stored_elements(view.shape, view.layout, view.type);  // throws if it overflows
  if (view.layout == Layout::blocked && view.shape.extent.x > 1 && view.stride[4] != view.lanes()) {
    throw InvalidArgument(fmt::format(
        "convert: the x stride of {} is {}, but voxels of a blocked {} tensor are {} elements apart; copy it first",
        what, view.stride[4], name_of(view.type), view.lanes()));
  }
}

void check_tensors(const ConstTensorView& source, const ConstTensorView& target) {
  check_view("source", source);
  check_view("target", target);
  require_shape("convert", "target", target.shape, source.shape);
  const std::array<index_t, 5> counts = counts_of(target);
  for (std::size_t axis = 0; axis < counts.size(); ++axis) {
    if (counts[axis] == 1 || target.stride[axis] != 0) continue;
    throw InvalidArgument(fmt::format(
        "convert: stride {} of target is 0, so its elements share memory; give each element a place", axis));
  }
  const std::optional<index_t> distance = target.data.bytes_from(source.data);
  if (!distance) return;
  const ByteRange from = byte_range(source), to = byte_range(target);
  if (*distance < from.end - to.begin && from.begin - to.end < *distance) {
    throw InvalidArgument(fmt::format(
        "convert: source and target overlap: target begins {} bytes behind source, which takes {} bytes; convert into "
        "a tensor of its own",
        *distance + to.begin - from.begin, from.end - from.begin));
  }
}

/// Returns the typed view. If a row has one voxel, its x stride is never used, so it becomes that of a row.
template <class T, bool Const>
auto typed(const BasicTensorView<Const>& tensor) {
  auto view = tensor.template as<T>();
  if (view.shape.extent.x == 1) view.stride[4] = view.block_channels();
  return view;
}

template <class S>
Ready append_from(TaskGraph& graph, const Ready& ready, const View<const S>& source, const TensorView& target) {
  if (target.type == DataType::f32) return append_typed<S, float>(graph, ready, source, typed<float>(target));
  return append_typed<S, double>(graph, ready, source, typed<double>(target));
}

}  // namespace

template <class T>
void convert(const ConstView<T>& source, const View<T>& target) {
  require_rows("convert", "source", source);
  require_rows("convert", "target", target);
  require_shape("convert", "target", target.shape, source.shape);
  const Origin<T> origin{source, 0};
  const Cut parts = gather_cut<T>(std::span(&origin, 1), target);
  for (index_t n = 0; n < parts.samples; ++n) {
    for (index_t block = 0; block < parts.blocks; ++block) {
      for (index_t slab = 0; slab < parts.slabs; ++slab) {
        gather<T>(std::span(&origin, 1), target, part_of(parts, n, block, slab), false);
      }
    }
  }
}

template void convert(const ConstView<float>&, const View<float>&);
template void convert(const ConstView<double>&, const View<double>&);

}  // namespace convolume::ops

namespace convolume {

Ready append_convert(TaskGraph& graph, const Ready& ready, const ConstTensorView& source, const TensorView& target) {
  static_cast<void>(simd_target());  // throws if the library has no kernels for this processor
  ops::check_tensors(source, target);
  if (source.type == DataType::f32) return ops::append_from<float>(graph, ready, ops::typed<float>(source), target);
  return ops::append_from<double>(graph, ready, ops::typed<double>(source), target);
}

void convert(const Execution& run, const ConstTensorView& source, const TensorView& target) {
  TaskGraph graph;
  append_convert(graph, {}, source, target);
  graph.run(run.scheduler);
}

}  // namespace convolume
