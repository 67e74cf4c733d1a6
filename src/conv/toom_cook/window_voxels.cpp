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
      batch_(p.batch),
      source_channels_(forward_ ? p.in_channels : p.out_channels),
      target_channels_(forward_ ? p.out_channels : p.in_channels),
      source_blocks_((source_channels_ + lanes - 1) / lanes),
      target_blocks_((target_channels_ + lanes - 1) / lanes),
      source_layout_(forward_ ? p.x_layout : p.y_layout),
      target_layout_(forward_ ? p.y_layout : p.x_layout),
      source_extent_(forward_ ? p.input : p.output()),
      target_extent_(forward_ ? p.output() : p.input),
      count_(plan::windows_of(target_extent_)),
      plan_(plan::plan_windows(p, direction, machine_model())),
      strides_(plane_strides<T>(plan_.group.z * window_results + 2, plan_.group.x,
                                std::max(source_blocks_, target_blocks_))),
      non_temporal_from_(non_temporal_from()),
      streams_weights_(static_cast<index_t>(sizeof(T)) * weight_elements() > machine_model().l3_bytes / 2) {
  for (int axis = 0; axis < 3; ++axis) {
    // Voxel i of y reads x from i - pad on. Voxel i of dx reads dy from i + pad - 2 on.
    offset_[axis] = forward_ ? -p.pad_before[axis] : p.pad_before[axis] - 2;
  }
}

template <class T>
std::size_t WindowVoxels<T>::scratch_bytes() const {
  const index_t rows = plan_.group.volume();
  return bytes_of<T>(plan_.group.y * row_elements()) +
         bytes_of<T>(window_points * rows * lanes * (source_blocks_ + target_blocks_)) +
         plane_scratch_bytes<T>(plan_.group.x);
}

/// Computes the values that relate some source channels to one block of target channels.
template <class T>
void WindowVoxels<T>::transform_weights(const T* packed, index_t column, index_t term, index_t terms, T* values,
                                        T* scratch) const {
  const index_t first = column * lanes;
  // The rows of w are channels of y, its columns those of x.
  const index_t row = (forward_ ? source_channels_ : target_channels_) * window_taps;
  const WindowWeights<T> weights{
      .w = forward_ ? packed + first * row + term * window_taps : packed + term * row + first * window_taps,
      .term_step = forward_ ? window_taps : row,
      .lane_step = forward_ ? row : window_taps,
      .terms = terms,
      .lanes = std::min(lanes, target_channels_ - first),
      .mirrored = !forward_,
      .non_temporal = streams_weights_};
  transforms_.weights(weights, values + (column * source_channels_ + term) * lanes, weight_step(), scratch);
}

template <class T>
std::vector<TaskId> WindowVoxels<T>::append_weights(TaskGraph& graph, std::function<const T*()> packed,
                                                    std::function<T*()> values, std::pmr::memory_resource* memory,
                                                    const std::vector<TaskId>& after) const {
  const TaskId taken = graph.add(
      {.name = "take weight values"}, [values] { values(); }, after);
  const index_t pieces = (source_channels_ + terms_together - 1) / terms_together;
  const auto body = [this, packed, values, memory, pieces](index_t begin, index_t end) {
    Scratch scratch(memory, weight_scratch_bytes(terms_together));
    T* const temporary = scratch.take<T>(weight_scratch_bytes(terms_together));
    for (index_t i = begin; i < end; ++i) {
      const index_t term = i % pieces * terms_together;
      transform_weights(packed(), i / pieces, term, std::min(terms_together, source_channels_ - term), values(),
                        temporary);
    }
  };
  return ops::append_ranges(graph, "weight values", target_blocks_ * pieces,
                            static_cast<double>(window_frequencies * lanes * terms_together), {taken}, body,
                            weight_scratch_bytes(terms_together));
}

/// Transforms the rows and columns of all planes that a group reads.
template <class T>
void WindowVoxels<T>::transform_group(index_t n, const Group& group, const GroupTensors<T>& tensors, T* planes,
                                      T* scratch) const {
  for (index_t y = 0; y < group.count.y; ++y) {
    const Extent3 first = group.first + Extent3{0, y, 0};
    for (index_t block = 0; block < source_blocks_; ++block) {
      WindowSource<T> source{.block = block_of(tensors.source, source_layout_, n, block * lanes),
                             .origin = first * Extent3::all(window_results) + offset_,
                             .planes = group.count.z * window_results + 2,
                             .windows = group.count.x,
                             .activation = tensors.gradient};
      if (tensors.gradient != nullptr) source.y = block_of(tensors.y, source_layout_, n, block * lanes);
      transforms_.planes(source, planes + y * row_elements() + block * lanes, strides_, scratch);
    }
  }
}

/// Transforms, multiplies and inverts the lines along Z of one frequency of the planes, in place.
template <class T>
void WindowVoxels<T>::multiply_frequency(const Group& group, index_t frequency, const T* weights, T* planes, T* in,
                                         T* out) const {
  const PlaneStrides& strides = strides_;
  const index_t rows = group.count.volume(), layer = group.count.z * group.count.x;
  const index_t in_row = source_blocks_ * lanes, out_row = group.blocks * lanes;
  weights += group.block * source_channels_ * lanes;
  planes += frequency * strides.frequency;
  WindowLines<T> lines{
      .plane = strides.plane, .window = strides.window, .windows_x = group.count.x, .windows_z = group.count.z};
  lines.frequency = rows * in_row;
  lines.row = lines.channels = in_row;
  for (index_t y = 0; y < group.count.y; ++y) {
    lines.planes = planes + y * row_elements();
    lines.values = in + y * layer * in_row;
    transforms_.lines(lines);
  }
  for (index_t h = 0; h < window_points; ++h) {
    multiply_({.a = in + h * rows * in_row,
               .a_row = in_row,
               .a_term = 1,
               .b = weights + (frequency * window_points + h) * weight_step(),
               .b_term = lanes,
               .b_column = source_channels_ * lanes,
               .c = out + h * rows * out_row,
               .c_row = out_row,
               .c_column = lanes,
               .rows = rows,
               .terms = source_channels_,
               .columns = group.blocks,
               .ahead = static_cast<std::ptrdiff_t>(bytes_ahead / sizeof(T))});
  }
  lines.frequency = rows * out_row;
  lines.row = lines.channels = out_row;
  for (index_t y = 0; y < group.count.y; ++y) {
    lines.planes = planes + y * row_elements();
    lines.values = out + y * layer * out_row;
    transforms_.inverse_lines(lines);
  }
}

template <class T>
void WindowVoxels<T>::invert_group(index_t n, const Group& group, const GroupTensors<T>& tensors, const T* planes,
                                   T* scratch) const {
  const bool non_temporal =
      !tensors.add && target_layout_ == Layout::blocked && writes_non_temporal(tensors.target, non_temporal_from_);
  for (index_t y = 0; y < group.count.y; ++y) {
    const Extent3 origin = (group.first + Extent3{0, y, 0}) * Extent3::all(window_results);
    for (index_t i = 0; i < group.blocks; ++i) {
      const index_t channel = (group.block + i) * lanes;
      const WindowTarget<T> target{.block = block_of(tensors.target, target_layout_, n, channel),
                                   .origin = origin,
                                   .planes = std::min(group.count.z * window_results, target_extent_.z - origin.z),
                                   .windows = group.count.x,
                                   .bias = tensors.bias ? tensors.bias.data.get() + channel : nullptr,
                                   .activation = tensors.activation,
                                   .add = tensors.add,
                                   .non_temporal = non_temporal};
      transforms_.inverse_planes(planes + y * row_elements() + i * lanes, strides_, target, scratch);
    }
  }
  if (non_temporal) fence_streams();
}

template <class T>
void WindowVoxels<T>::run_group(index_t n, const Group& group, const GroupTensors<T>& tensors) const {
  const index_t rows = plan_.group.volume() * window_points * lanes;
  Scratch scratch(tensors.memory, scratch_bytes());
  T* planes = scratch.take<T>(bytes_of<T>(plan_.group.y * row_elements()));
  T* in = scratch.take<T>(bytes_of<T>(rows * source_blocks_));
  T* out = scratch.take<T>(bytes_of<T>(rows * target_blocks_));
  T* temporary = scratch.take<T>(plane_scratch_bytes<T>(plan_.group.x));
  transform_group(n, group, tensors, planes, temporary);
  for (index_t frequency = 0; frequency < plane_frequencies; ++frequency) {
    multiply_frequency(group, frequency, tensors.weights, planes, in, out);
  }
  invert_group(n, group, tensors, planes, temporary);
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
  const index_t begin = group.first.z * window_results + offset_.z;
  const index_t end = begin + group.count.z * window_results + 2;
  const index_t first = std::clamp<index_t>(begin, 0, source_extent_.z - 1);
  source.collect(n, 0, source_channels_, first, std::clamp<index_t>(end, first + 1, source_extent_.z), after);
}

template <class T>
Ready WindowVoxels<T>::append_groups(TaskGraph& graph, const Ready& source, const Ready& target,
                                     const std::vector<TaskId>& weights,
                                     std::function<GroupTensors<T>()> tensors) const {
  const double window_cost = 2.0 * static_cast<double>(window_frequencies * source_channels_ * target_channels_);
  const index_t planes = plan_.group.z * window_results;
  std::vector<TaskId> done;
  for (index_t n = 0; n < batch_; ++n) {
    for (index_t z = 0; z < count_.z; z += plan_.group.z) {
      std::vector<TaskId> layer;
      for (const Group& group : groups_of_layer(z)) {
        std::vector<TaskId> after = weights;
        collect_source(source, n, group, after);
        const index_t begin = z * window_results;
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
