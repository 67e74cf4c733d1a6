#include "conv/toom_cook/window_voxels.hpp"

#include <algorithm>

#include "conv/caches/scratch.hpp"
#include "conv/tensor_io/tile_io.hpp"
#include "convolume/machine.hpp"
#include "ops/append.hpp"

namespace convolume::conv {
namespace {

/// Bytes of weights that are prefetched ahead. They come from the L2 or the L3, in the order in which they lie.
constexpr std::size_t bytes_ahead = 8192;
/// Source channels whose weights are transformed together: their values take 108 KiB.
constexpr index_t terms_together = 8;

}  // namespace

template <class T>
WindowVoxels<T>::WindowVoxels(const ConvProblem& p, plan::Direction direction)
    : forward_(direction == plan::Direction::forward),
      shape_{p.kernel},
      batch_(p.batch),
      source_channels_(forward_ ? p.in_channels : p.out_channels),
      target_channels_(forward_ ? p.out_channels : p.in_channels),
      source_blocks_((source_channels_ + lanes - 1) / lanes),
      target_blocks_((target_channels_ + lanes - 1) / lanes),
      source_layout_(forward_ ? p.x_layout : p.y_layout),
      target_layout_(forward_ ? p.y_layout : p.x_layout),
      source_extent_(forward_ ? p.input : p.output()),
      target_extent_(forward_ ? p.output() : p.input),
      count_(shape_.windows_of(target_extent_)),
      plan_(plan::plan_windows(p, direction, machine_model())),
      non_temporal_from_(non_temporal_from()),
      streams_weights_(static_cast<index_t>(sizeof(T)) * weight_elements() > machine_model().l3_bytes / 2) {
  for (int axis = 0; axis < 3; ++axis) {
    // Voxel i of y reads x from i - pad on. Voxel i of dx reads dy from i + pad - overlap on.
    offset_[axis] = forward_ ? -p.pad_before[axis] : p.pad_before[axis] - shape_.overlap()[axis];
  }
}

template <class T>
auto WindowVoxels<T>::memory_of(const Group& group) const -> GroupMemory {
  const auto strides = [&](index_t blocks) {
    return plane_strides<T>(shape_, shape_.voxels(group.count).z, group.count, blocks);
  };
  if (!shape_.transforms_lines()) return {strides(source_blocks_), strides(group.blocks)};
  const PlaneStrides both = strides(std::max(source_blocks_, group.blocks));
  return {both, both};
}

template <class T>
std::size_t WindowVoxels<T>::scratch_bytes() const {
  const Group largest{.count = plan_.group, .blocks = (target_blocks_ + plan_.parts - 1) / plan_.parts};
  const GroupMemory memory = memory_of(largest);
  return plane_bytes(memory.source_strides) + (shape_.transforms_lines() ? 0 : plane_bytes(memory.target_strides)) +
         line_bytes(largest, source_blocks_) + line_bytes(largest, largest.blocks) +
         plane_scratch_bytes(shape_, plan_.group);
}

/// Computes the values that relate some source channels to one block of target channels.
template <class T>
void WindowVoxels<T>::transform_weights(const T* packed, index_t column, index_t term, index_t terms, T* values,
                                        T* scratch) const {
  const index_t first = column * lanes;
  // The rows of w are channels of y, its columns those of x.
  const index_t taps = shape_.taps.volume(), row = (forward_ ? source_channels_ : target_channels_) * taps;
  const WindowWeights<T> weights{
      .shape = shape_,
      .w = forward_ ? packed + first * row + term * taps : packed + term * row + first * taps,
      .term_step = forward_ ? taps : row,
      .lane_step = forward_ ? row : taps,
      .terms = terms,
      .lanes = std::min(lanes, target_channels_ - first),
      .mirrored = !forward_,
      .non_temporal = streams_weights_};
  weights_.weights(weights, values + (column * source_channels_ + term) * lanes, weight_step(), scratch);
}

template <class T>
std::vector<TaskId> WindowVoxels<T>::append_weights(TaskGraph& graph, std::function<const T*()> packed,
                                                    std::function<T*()> values, std::pmr::memory_resource* memory,
                                                    const std::vector<TaskId>& after) const {
  const TaskId taken = graph.add(
      {.name = "take weight values"}, [values] { values(); }, after);
  const index_t pieces = (source_channels_ + terms_together - 1) / terms_together;
  const std::size_t bytes = weight_scratch_bytes(shape_, terms_together);
  const auto body = [this, packed, values, memory, pieces, bytes](index_t begin, index_t end) {
    Scratch scratch(memory, bytes);
    T* const temporary = scratch.take<T>(bytes);
    for (index_t i = begin; i < end; ++i) {
      const index_t term = i % pieces * terms_together;
      transform_weights(packed(), i / pieces, term, std::min(terms_together, source_channels_ - term), values(),
                        temporary);
    }
  };
  return ops::append_ranges(graph, "weight values", target_blocks_ * pieces,
                            static_cast<double>(shape_.frequencies() * lanes * terms_together), {taken}, body, bytes);
}

/// Transforms the rows and columns of all planes that a group reads.
template <class T>
void WindowVoxels<T>::transform_group(index_t n, const Group& group, const GroupTensors<T>& tensors,
                                      const GroupMemory& memory, T* scratch) const {
  const PlaneStrides& strides = memory.source_strides;
  for (index_t y = 0; y < group.count.y; ++y) {
    const Extent3 first = group.first + Extent3{0, y, 0};
    for (index_t block = 0; block < source_blocks_; ++block) {
      WindowSource<T> source{.block = block_of(tensors.source, source_layout_, n, block * lanes),
                             .origin = first * shape_.results() + offset_,
                             .planes = shape_.voxels(group.count).z,
                             .windows = group.count.x,
                             .activation = tensors.gradient};
      if (tensors.gradient != nullptr) source.y = block_of(tensors.y, source_layout_, n, block * lanes);
      transforms_.planes(source, memory.source + y * strides.row + block * lanes, strides, scratch);
    }
  }
}

/// Multiplies all windows of a group at one frequency. The channels of neighbouring windows lie `in_row` and `out_row`
/// elements apart.
template <class T>
void WindowVoxels<T>::multiply(const Group& group, index_t frequency, const T* weights, const T* in, index_t in_row,
                               T* out, index_t out_row) const {
  multiply_({.a = in,
             .a_row = in_row,
             .a_term = 1,
             .b = weights + frequency * weight_step() + group.block * source_channels_ * lanes,
             .b_term = lanes,
             .b_column = source_channels_ * lanes,
             .c = out,
             .c_row = out_row,
             .c_column = lanes,
             .rows = group.count.volume(),
             .terms = source_channels_,
             .columns = group.blocks,
             .ahead = static_cast<std::ptrdiff_t>(bytes_ahead / sizeof(T))});
}

/// Transforms, multiplies and inverts the lines along Z of one frequency of the planes, in place.
template <class T>
void WindowVoxels<T>::multiply_lines(const Group& group, index_t frequency, const T* weights,
                                     const GroupMemory& memory) const {
  const PlaneStrides& strides = memory.source_strides;
  const index_t rows = group.count.volume(), layer = group.count.z * group.count.x;
  const index_t in_row = source_blocks_ * lanes, out_row = group.blocks * lanes;
  const index_t in_step = line_stride<T>(rows, source_blocks_), out_step = line_stride<T>(rows, group.blocks);
  T* const planes = memory.source + frequency * strides.frequency;
  WindowLines<T> lines{
      .plane = strides.plane, .window = strides.window, .windows_x = group.count.x, .windows_z = group.count.z};
  lines.frequency = in_step;
  lines.row = lines.channels = in_row;
  for (index_t y = 0; y < group.count.y; ++y) {
    lines.planes = planes + y * strides.row;
    lines.values = memory.in + y * layer * in_row;
    transforms_.lines(lines);
  }
  for (index_t h = 0; h < window_points; ++h) {
    multiply(group, frequency * window_points + h, weights, memory.in + h * in_step, in_row, memory.out + h * out_step,
             out_row);
  }
  lines.frequency = out_step;
  lines.row = lines.channels = out_row;
  for (index_t y = 0; y < group.count.y; ++y) {
    lines.planes = planes + y * strides.row;
    lines.values = memory.out + y * layer * out_row;
    transforms_.inverse_lines(lines);
  }
}

template <class T>
void WindowVoxels<T>::invert_group(index_t n, const Group& group, const GroupTensors<T>& tensors,
                                   const GroupMemory& memory, T* scratch) const {
  const PlaneStrides& strides = memory.target_strides;
  const Extent3 results = shape_.results();
  const bool non_temporal =
      !tensors.add && target_layout_ == Layout::blocked && writes_non_temporal(tensors.target, non_temporal_from_);
  for (index_t y = 0; y < group.count.y; ++y) {
    const Extent3 origin = (group.first + Extent3{0, y, 0}) * results;
    for (index_t i = 0; i < group.blocks; ++i) {
      const index_t channel = (group.block + i) * lanes;
      const WindowTarget<T> target{.block = block_of(tensors.target, target_layout_, n, channel),
                                   .origin = origin,
                                   .planes = std::min(group.count.z * results.z, target_extent_.z - origin.z),
                                   .windows = group.count.x,
                                   .bias = tensors.bias ? tensors.bias.data.get() + channel : nullptr,
                                   .activation = tensors.activation,
                                   .add = tensors.add,
                                   .non_temporal = non_temporal};
      transforms_.inverse_planes(memory.target + y * strides.row + i * lanes, strides, target, scratch);
    }
  }
  if (non_temporal) fence_streams();
}

template <class T>
void WindowVoxels<T>::run_group(index_t n, const Group& group, const GroupTensors<T>& tensors) const {
  Scratch scratch(tensors.memory, scratch_bytes());
  GroupMemory memory = memory_of(group);
  const PlaneStrides &source = memory.source_strides, &target = memory.target_strides;
  memory.source = scratch.take<T>(plane_bytes(source));
  memory.target = shape_.transforms_lines() ? memory.source : scratch.take<T>(plane_bytes(target));
  memory.in = scratch.take<T>(line_bytes(group, source_blocks_));
  memory.out = scratch.take<T>(line_bytes(group, group.blocks));
  T* temporary = scratch.take<T>(plane_scratch_bytes(shape_, group.count));
  transform_group(n, group, tensors, memory, temporary);
  for (index_t f = 0; f < shape_.plane_frequencies(); ++f) {
    if (shape_.transforms_lines()) {
      multiply_lines(group, f, tensors.weights, memory);
    } else {
      multiply(group, f, tensors.weights, memory.source + f * source.frequency, source.window,
               memory.target + f * target.frequency, target.window);
    }
  }
  invert_group(n, group, tensors, memory, temporary);
}

/// Returns the groups that begin with windows number z along Z, in the order Y, X, part.
template <class T>
auto WindowVoxels<T>::groups_of_layer(index_t z) const -> std::vector<Group> {
  std::vector<Group> groups;
  for (index_t y = 0; y < count_.y; y += plan_.group.y) {
    for (index_t x = 0; x < count_.x; x += plan_.group.x) {
      const Extent3 first{z, y, x}, rest = count_ - first;
      Group group{.first = first};
      for (int axis = 0; axis < 3; ++axis) group.count[axis] = std::min(plan_.group[axis], rest[axis]);
      for (index_t part = 0; part < plan_.parts; ++part) {
        group.block = target_blocks_ * part / plan_.parts;
        group.blocks = target_blocks_ * (part + 1) / plan_.parts - group.block;
        groups.push_back(group);
      }
    }
  }
  return groups;
}

template <class T>
void WindowVoxels<T>::collect_source(const Ready& source, index_t n, const Group& group,
                                     std::vector<TaskId>& after) const {
  const index_t begin = group.first.z * shape_.results().z + offset_.z;
  const index_t end = begin + shape_.voxels(group.count).z;
  const index_t first = std::clamp<index_t>(begin, 0, source_extent_.z - 1);
  source.collect(n, 0, source_channels_, first, std::clamp<index_t>(end, first + 1, source_extent_.z), after);
}

template <class T>
Ready WindowVoxels<T>::append_groups(TaskGraph& graph, const Ready& source, const Ready& target,
                                     const std::vector<TaskId>& weights,
                                     std::function<GroupTensors<T>()> tensors) const {
  const double window_cost = 2.0 * static_cast<double>(shape_.frequencies() * source_channels_ * target_channels_);
  const index_t results = shape_.results().z, planes = plan_.group.z * results;
  std::vector<TaskId> done;
  for (index_t n = 0; n < batch_; ++n) {
    for (index_t z = 0; z < count_.z; z += plan_.group.z) {
      std::vector<TaskId> layer;
      for (const Group& group : groups_of_layer(z)) {
        std::vector<TaskId> after = weights;
        collect_source(source, n, group, after);
        const index_t begin = z * results;
        target.collect(n, group.block * lanes, std::min((group.block + group.blocks) * lanes, target_channels_), begin,
                       std::min(begin + planes, target_extent_.z), after);
        layer.push_back(graph.add(
            {.name = forward_ ? "windows forward" : "windows backward",
             .cost = window_cost * static_cast<double>(group.count.volume() * group.blocks) /
                     static_cast<double>(target_blocks_),
             .scratch_bytes = scratch_bytes()},
            [this, tensors, n, group] { run_group(n, group, tensors()); }, after));
      }
      done.push_back(layer.size() == 1 ? layer.front()
                                       : graph.add(
                                             {.name = "join windows"}, [] {}, layer));
    }
  }
  return Ready(std::move(done), 1, (count_.z + plan_.group.z - 1) / plan_.group.z, target_channels_, planes);
}

template class WindowVoxels<float>;
template class WindowVoxels<double>;

}  // namespace convolume::conv
