// Computes the weight gradient of a direct convolution: sums over voxels in an order that does not depend on the
// threads.
#pragma once

#include "conv/direct/channel_product.hpp"
#include "conv/direct/direct_nest.hpp"
#include "conv/engine.hpp"
#include "conv/taps/tap_geometry.hpp"
#include "conv/tensor_io/block_box.hpp"
#include "conv/tensor_io/direction_tensors.hpp"
#include "conv/weights/weight_blocks.hpp"

namespace convolume::conv {

/// The work of one task: a part of the voxels of dy, for some channel blocks of x and of dy.
struct PairGroup {
  index_t part = 0;
  index_t first_sample = 0, last_sample = 1;
  Box box{};
  index_t first_in = 0, last_in = 1, first_out = 0, last_out = 1;
};

/// The kernels of the weight gradient, for one SIMD target.
template <class T>
struct GradientKernels {
  ChannelKernel<T> multiply = channel_kernel<T>();
  BoxKernels<T> boxes = box_kernels<T>();
  WeightKernels<T> squares = weight_kernels<T>();
};

/// The weight gradient. The layout of the sums is [part][weights as in WeightBlocks], where lanes are channels of dy
/// and terms are channels of x. If one piece contains all voxels, each pair of channel blocks is completed at once, and
/// tasks pass no sums to each other.
template <class T>
class WeightGradient {
 public:
  /// `nest` is that of backward weights of `problem`, which may be transposed. Throws Unsupported if the engine has no
  /// such microkernel.
  WeightGradient(const ConvProblem& problem, const plan::LoopNest& nest);

  const WeightNest& nest() const noexcept { return nest_; }
  bool at_once() const noexcept { return nest_.one_piece; }
  index_t elements() const noexcept { return nest_.parts() * layout_.elements(); }
  index_t pairs() const noexcept { return layout_.lane_blocks() * layout_.term_blocks(); }
  PairGroup group(index_t part, index_t in_group, index_t out_group) const noexcept;

  /// Computes the sums of a group. Thread-safe for different groups.
  void sum(const GradientTensors<T>& tensors, const PairGroup& group, T* sums) const;
  /// If there is only one piece: sums the pairs of channel blocks of a group and writes dw. Thread-safe for different
  /// groups.
  void write(const BackwardArguments& arguments, const GradientTensors<T>& tensors, const PairGroup& group) const;
  /// Returns the bytes of scratch that sum() takes, or that write() takes if at_once().
  std::size_t scratch_bytes(const GradientTensors<T>& tensors, const PairGroup& group) const;
  /// Adds the parts of one pair of channel blocks and writes dw. Thread-safe for different pairs.
  void finish(const BackwardArguments& arguments, index_t pair, T* sums) const;
  /// Returns the bytes of scratch that finish() takes.
  std::size_t finish_scratch_bytes() const noexcept { return pack_scratch_bytes(layout_); }

 private:
  std::size_t pair_bytes() const noexcept {
    return 2 * sizeof(T) * static_cast<std::size_t>(layout_.taps * layout_.square());
  }

  ConvProblem problem_;  ///< not transposed
  WeightBlocks<T> layout_;
  bool non_temporal_;  ///< the gradient is so large that it is written with non-temporal stores
  WeightNest nest_;
  GradientKernels<T> kernels_;
};

}  // namespace convolume::conv
