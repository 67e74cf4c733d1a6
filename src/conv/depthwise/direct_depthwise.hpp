// Direct depthwise convolution: where taps lie, one box of voxels of one channel block, and the sums of its weights'
// gradient. Blocked tensors are read and written where they are; others are staged, box by box.
#pragma once

#include <string>

#include "conv/depthwise/depthwise_product.hpp"
#include "conv/taps/tap_tensors.hpp"
#include "fft/tile_plan.hpp"

namespace convolume::conv {

/// Taps that are summed up in registers before the sum is added to memory, unless a row has more: rows of voxels around
/// them stay in the L1, and sums of sums round less than one long sum.
inline constexpr index_t depthwise_taps_per_pass = 50;

/// A row of a phase's taps along x: where its first one lies from the voxel that the phase begins at.
struct TapRow {
  Extent3 offset{};
  index_t tap = 0;  ///< number of the voxel in the kernel
};

/// The taps of a phase, as rows of the same form.
struct TapRows {
  explicit TapRows(const DirectPhase& phase);

  std::vector<TapRow> rows;
  index_t taps = 0;      ///< of a row
  index_t per_pass = 1;  ///< rows that are summed up together: of a plane of the kernel, or of several small ones
  index_t source_step = 0, kernel_step = 0;  ///< from tap to tap of a row: along x, and in the kernel's order
};

/// Boxes of whole rows whose sources and results fit into the L2, enough of them for many threads.
RegionGrid choose_boxes(const DirectMap& map, const ConvProblem& problem);

/// One direction that yields voxels: y, or dx, of a problem that is not transposed.
struct DepthwiseDirection {
  DepthwiseDirection(const ConvProblem& problem, plan::Direction direction);

  DirectMap map;
  std::vector<TapRows> phases;  ///< as the map's
  index_t taps = 1;             ///< of the kernel
  Extent3 source{};
  Layout source_layout, target_layout;
  RegionGrid grid;
};

/// Bytes of scratch that run_depthwise() takes; shapes and layouts of the ends decide, not where their data lies.
template <class T>
std::size_t depthwise_scratch_bytes(const DepthwiseDirection& direction, const Region& region,
                                    const RegionEnds<T>& ends);

/// Computes a box of one channel block (the region's first column), with scratch from `memory`. Weights are
/// [channel block][tap][lane]. Bits of a result depend on neither box nor layouts. Thread-safe for boxes that do not
/// overlap.
template <class T>
void run_depthwise(const DepthwiseDirection& direction, const Region& region, const RegionEnds<T>& ends,
                   const T* weights, std::pmr::memory_resource* memory);

/// The weights' gradient: boxes of dy are summed in their order to a part's sums, parts in their order at the end.
/// Sums lie as [part][channel block][tap][lane].
template <class T>
class DepthwiseGradient {
 public:
  DepthwiseGradient(const ConvProblem& problem, const DepthwiseDirection& forward);

  std::string describe() const;
  index_t parts() const noexcept { return parts_; }
  index_t elements() const noexcept { return parts_ * blocks_ * block_elements(); }
  /// Boxes [first_box(part), first_box(part + 1)) of all samples', in their order, belong to a part.
  index_t first_box(index_t part) const noexcept { return boxes_ * part / parts_; }

  /// Fills the sums of a part and a block. Thread-safe for distinct ones.
  void sum(const PieceTensors<T>& tensors, index_t part, index_t block, T* sums) const;
  /// Bytes of scratch that sum() takes at most.
  std::size_t scratch_bytes(const PieceTensors<T>& tensors, index_t part) const;
  /// Adds up the parts of a block and writes dw. Thread-safe for distinct blocks.
  void finish(const BackwardArguments& arguments, index_t block, T* sums) const;

 private:
  index_t block_elements() const noexcept { return problem_.kernel.volume() * fft::tile_lanes<T>; }

  ConvProblem problem_;
  const DepthwiseDirection& forward_;
  index_t blocks_, boxes_, parts_;
};

}  // namespace convolume::conv
