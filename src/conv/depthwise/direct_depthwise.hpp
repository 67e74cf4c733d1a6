// Direct depthwise convolution: the places of taps, the computation of one box of voxels of one channel block, and the
// sums of the weight gradient. Blocked tensors are read and written in place. Other tensors are staged box by box.
#pragma once

#include <string>

#include "conv/depthwise/depthwise_product.hpp"
#include "conv/taps/tap_geometry.hpp"
#include "conv/tensor_io/block_box.hpp"
#include "conv/tensor_io/direction_tensors.hpp"
#include "fft/tile_plan.hpp"

namespace convolume::conv {

/// The most taps that are summed in registers before the sum is added to memory. (A single row with more taps is summed
/// at once.) Then the rows of voxels around these taps stay in the L1. Also, a sum of partial sums has less rounding
/// error than one long sum.
inline constexpr index_t depthwise_taps_per_pass = 50;

/// A row of a phase's taps along X. `offset` is the distance of its first tap from the voxel at which the phase begins.
struct TapRow {
  Extent3 offset{};
  index_t tap = 0;  ///< index of the first tap's voxel in the kernel
};

/// The taps of a phase, as rows of equal length.
struct TapRows {
  explicit TapRows(const DirectPhase& phase);

  std::vector<TapRow> rows;
  index_t taps = 0;      ///< taps of one row
  index_t per_pass = 1;  ///< rows that are summed together: from one plane of the kernel, or from several small planes
  index_t source_step = 0, kernel_step = 0;  ///< between taps of a row: along X, and in the kernel's order
};

/// Returns boxes of whole rows. The sources and results of a box fit into the L2, and there are enough boxes for many
/// threads.
RegionGrid choose_boxes(const DirectMap& map, const ConvProblem& problem);

/// One direction that yields voxels, y or dx, of a problem that is not transposed.
template <class T>
struct DepthwiseDirection {
  DepthwiseDirection(const ConvProblem& problem, plan::Direction direction);

  DirectMap map;
  std::vector<TapRows> phases;  ///< in the order of map.phases()
  index_t taps = 1;             ///< of the kernel
  Extent3 source{};
  Layout source_layout, target_layout;
  RegionGrid grid;
  index_t non_temporal_from = conv::non_temporal_from();
  DepthwiseKernels<T> products = depthwise_kernels<T>();
  BoxKernels<T> boxes = box_kernels<T>();
};

/// Returns the kernels of the channels [first, first + channel_block) as a block of voxels. Kernels without gaps are
/// one row, because long rows are transposed faster.
template <class T>
BlockView<T> kernel_block(const View<T>& w, index_t first);

/// Returns the bytes of scratch that run_depthwise() takes. They depend on the shapes and layouts of `tensors`, not on
/// the addresses of the data.
template <class T>
std::size_t depthwise_scratch_bytes(const DepthwiseDirection<T>& direction, const Region& region,
                                    const DirectionTensors<T>& tensors);

/// Computes a box of one channel block (the region's first column). Takes scratch from `memory`. The layout of the
/// weights is [channel block][tap][lane]. The bits of a result depend neither on the box nor on the layouts.
/// Thread-safe for boxes that do not overlap.
template <class T>
void run_depthwise(const DepthwiseDirection<T>& direction, const Region& region, const DirectionTensors<T>& tensors,
                   const T* weights, std::pmr::memory_resource* memory);

/// The weight gradient. The boxes of dy of a part are added to the part's sums in their order. At the end the parts are
/// added in their order. The layout of the sums is [part][channel block][tap][lane].
template <class T>
class DepthwiseGradient {
 public:
  DepthwiseGradient(const ConvProblem& problem, const DepthwiseDirection<T>& forward);

  std::string describe() const;
  index_t parts() const noexcept { return parts_; }
  index_t elements() const noexcept { return parts_ * blocks_ * block_elements(); }
  /// Returns the first box of a part. A part has the boxes [first_box(part), first_box(part + 1)) of all samples, in
  /// their order.
  index_t first_box(index_t part) const noexcept { return boxes_ * part / parts_; }

  /// Computes the sums of one part and one channel block. Thread-safe for different parts or blocks.
  void sum(const GradientTensors<T>& tensors, index_t part, index_t block, T* sums) const;
  /// Returns the most bytes of scratch that sum() takes.
  std::size_t scratch_bytes(const GradientTensors<T>& tensors, index_t part) const;
  /// Adds the parts of one channel block and writes dw. Thread-safe for different blocks.
  void finish(const BackwardArguments& arguments, index_t block, T* sums) const;
  /// Returns the bytes of scratch that finish() takes.
  std::size_t finish_scratch_bytes() const noexcept { return static_cast<std::size_t>(block_elements()) * sizeof(T); }

 private:
  index_t block_elements() const noexcept { return problem_.kernel.volume() * fft::tile_lanes<T>; }

  ConvProblem problem_;
  const DepthwiseDirection<T>& forward_;
  index_t blocks_, boxes_, parts_;
};

}  // namespace convolume::conv
