// Computes the direction of toom_cook that sums over windows: dw from x and dy.
#pragma once

#include <memory>
#include <vector>

#include "conv/caches/buffer_store.hpp"
#include "conv/engine.hpp"
#include "conv/tensor_io/direction_tensors.hpp"
#include "conv/toom_cook/window_product.hpp"
#include "conv/toom_cook/window_transforms.hpp"
#include "conv/toom_cook/window_weights.hpp"
#include "plan/sides.hpp"
#include "plan/toom_cook_cost.hpp"

namespace convolume::conv {

/// F(3,4) along each axis of 3 taps: windows of 6 voxels of x and 4 voxels of dy. Their values are multiplied, for each
/// pair of channels, and summed over the windows in the order of plan::WindowSums. Then there is one inverse per pair.
///
/// The channels of both sides are divided into ranges of a few blocks. A task sums a part of the windows for one range
/// of each side, so its sums stay in the caches. If there is only one part, this task writes dw itself. Otherwise sums
/// lie in some buffers, which are used in turn: parts are added pairwise as soon as both are complete. Neither ranges
/// nor buffers change a bit.
///
/// "x" is the tensor of the high-resolution side, "dy" that of the low-resolution side; see plan::Sides. Immutable and
/// thread-safe.
template <class T>
class WindowGradient {
 public:
  explicit WindowGradient(const ConvProblem& problem);

  /// Appends tasks that compute the weight gradient.
  Ready append(TaskGraph& graph, const ConvReady& ready, const std::shared_ptr<const BackwardArguments>& a) const;
  const plan::WindowSums& sums() const { return sums_; }

 private:
  static constexpr index_t lanes = fft::tile_lanes<T>;
  /// A range of channels of both sides.
  struct Range {
    index_t in = 0, in_count = 0, out = 0, out_count = 0;
    index_t in_blocks() const { return (in_count + lanes - 1) / lanes; }
    index_t out_blocks() const { return (out_count + lanes - 1) / lanes; }
    /// Returns the elements of the sums of one frequency: [block of out][in][lane].
    index_t step() const { return out_blocks() * in_count * lanes; }
  };
  struct Chunk;    // windows that are summed in registers
  struct Memory;   // scratch of a task that sums
  struct Buffers;  // sums of parts, while tasks are appended

  std::vector<Range> ranges() const;
  Chunk chunk(index_t number) const;
  /// Returns the memory of a chunk with so many windows. The pointers are null.
  Memory memory_of(const Range& range, const Extent3& count) const;
  std::size_t scratch_bytes(const Range& range) const;
  std::size_t sums_bytes() const;
  double part_cost() const;
  void transform_chunk(const GradientTensors<T>& tensors, const Range& range, const Chunk& chunk,
                       const Memory& memory) const;
  void transform_lines(const Chunk& chunk, index_t frequency, const Memory& memory) const;
  void multiply(const Range& range, const Chunk& chunk, const T* in, const T* out, bool add, T* sums) const;
  void multiply_chunk(const Range& range, const Chunk& chunk, const Memory& memory, bool add, T* sums) const;
  void sum_part(const GradientTensors<T>& tensors, const Range& range, index_t part, T* sums) const;
  void write(const BackwardArguments& a, const Range& range, index_t begin, index_t end, const T* sums) const;
  void collect(const ConvReady& ready, const Range& range, index_t part, std::vector<TaskId>& after) const;
  std::vector<TaskId> append_range(TaskGraph& graph, const ConvReady& ready,
                                   const std::shared_ptr<const BackwardArguments>& a, const Range& range,
                                   Buffers& buffers) const;
  std::vector<TaskId> append_at_once(TaskGraph& graph, const ConvReady& ready,
                                     const std::shared_ptr<const BackwardArguments>& a) const;

  ConvProblem problem_;
  plan::Sides sides_;
  ConvProblem dense_;  ///< not transposed: sides_.convolution()
  WindowShape shape_;
  Extent3 windows_;  ///< of dy
  plan::WindowSums sums_;
  WindowTransforms<T> transforms_ = window_transforms<T>(shape_);
  WeightTransforms<T> weights_ = weight_transforms<T>();
  WindowMultiply<T> multiply_ = window_multiply<T>();
};

}  // namespace convolume::conv
