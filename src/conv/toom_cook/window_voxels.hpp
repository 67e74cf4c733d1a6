// Computes the directions of toom_cook whose results are voxels: y from x, and dx from dy.
#pragma once

#include <functional>
#include <vector>

#include "conv/engine.hpp"
#include "conv/tensor_io/group_tensors.hpp"
#include "conv/toom_cook/window_product.hpp"
#include "conv/toom_cook/window_transforms.hpp"
#include "conv/toom_cook/window_weights.hpp"
#include "plan/toom_cook_cost.hpp"

namespace convolume::conv {

/// Divides the target into windows, which begin at voxel 0 whatever the padding is. So a result depends only on the
/// voxels of its window, on the order of channels and on the SIMD target.
///
/// A task computes a group of windows: it transforms the planes of the group, then, for each frequency of a plane, the
/// lines along Z, which it multiplies and inverts in place in the L1, and at last inverts the planes. If lines are not
/// transformed, the planes are multiplied as they lie. Backward data is forward with mirrored, transposed weights.
/// Immutable and thread-safe.
template <class T>
class WindowVoxels {
 public:
  /// `problem` is not transposed; `direction` is forward or backward_data.
  WindowVoxels(const ConvProblem& problem, plan::Direction direction);

  const WindowShape& shape() const { return shape_; }
  /// Returns the number of values of the weights: [frequency][block of target channels][source channel][lane].
  index_t weight_elements() const { return shape_.frequencies() * weight_step(); }
  /// Appends tasks that compute the values of the weights. `packed()` returns the weights without gaps, `values()` the
  /// memory for the result. Scratch comes from `memory`.
  std::vector<TaskId> append_weights(TaskGraph& graph, std::function<const T*()> packed, std::function<T*()> values,
                                     std::pmr::memory_resource* memory, const std::vector<TaskId>& after) const;
  /// Appends tasks that compute the target, after the tasks in `weights`. `tensors()` returns what they read and write.
  Ready append_groups(TaskGraph& graph, const Ready& source, const Ready& target, const std::vector<TaskId>& weights,
                      std::function<GroupTensors<T>()> tensors) const;

 private:
  static constexpr index_t lanes = fft::tile_lanes<T>;
  /// A group of windows: the first of them, and how many there are along each axis. A task computes the blocks
  /// [block, block + blocks) of target channels.
  struct Group {
    Extent3 first{}, count{};
    index_t block = 0, blocks = 0;
  };

  /// Returns the elements between two frequencies of the weights.
  index_t weight_step() const { return target_blocks_ * source_channels_ * lanes; }
  /// The planes of a group, and one frequency of their lines.
  struct GroupMemory {
    PlaneStrides source_strides, target_strides;
    T *source = nullptr, *target = nullptr;  ///< the same memory if lines are inverted in place
    T *in = nullptr, *out = nullptr;
  };
  /// Returns the distances in the memory of a group. The pointers are null.
  GroupMemory memory_of(const Group& group) const;
  std::size_t plane_bytes(const PlaneStrides& strides) const {
    return bytes_of<T>(shape_.plane_frequencies() * strides.frequency);
  }
  /// Returns the bytes of one frequency of the lines of a group, with so many blocks of channels.
  std::size_t line_bytes(const Group& group, index_t blocks) const {
    return shape_.transforms_lines() ? bytes_of<T>(window_points * line_stride<T>(group.count.volume(), blocks)) : 0;
  }
  std::size_t scratch_bytes() const;
  void transform_weights(const T* packed, index_t column, index_t term, index_t terms, T* values, T* scratch) const;
  void run_group(index_t n, const Group& group, const GroupTensors<T>& tensors) const;
  void transform_group(index_t n, const Group& group, const GroupTensors<T>& tensors, const GroupMemory& memory,
                       T* scratch) const;
  void multiply(const Group& group, index_t frequency, const T* weights, const T* in, index_t in_row, T* out,
                index_t out_row) const;
  void multiply_lines(const Group& group, index_t frequency, const T* weights, const GroupMemory& memory) const;
  void invert_group(index_t n, const Group& group, const GroupTensors<T>& tensors, const GroupMemory& memory,
                    T* scratch) const;
  std::vector<Group> groups_of_layer(index_t z) const;
  void collect_source(const Ready& source, index_t n, const Group& group, std::vector<TaskId>& after) const;

  bool forward_;
  WindowShape shape_;
  index_t batch_, source_channels_, target_channels_, source_blocks_, target_blocks_;
  Layout source_layout_, target_layout_;
  Extent3 source_extent_, target_extent_, offset_, count_;
  plan::WindowPlan plan_;
  index_t non_temporal_from_;
  bool streams_weights_;  ///< the values of the weights are so many that no cache would hold them
  WindowTransforms<T> transforms_ = window_transforms<T>(shape_);
  WeightTransforms<T> weights_ = weight_transforms<T>();
  WindowMultiply<T> multiply_ = window_multiply<T>();
};

}  // namespace convolume::conv
