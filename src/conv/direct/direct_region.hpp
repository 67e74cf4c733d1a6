// One region of a direct convolution's results, forward or towards the input.
#pragma once

#include <memory_resource>

#include "conv/direct/direct_product.hpp"
#include "conv/taps/tap_tensors.hpp"
#include "conv/weights/weight_blocks.hpp"

namespace convolume::conv {

/// One direction that yields voxels: y, or dx. Terms are channels of its source, lanes those of its results.
template <class T>
struct VoxelDirection {
  VoxelDirection(const ConvProblem& problem, plan::Direction direction);

  DirectMap map;
  WeightBlocks<T> weights;
  Layout source_layout, target_layout;
  bool lines = false;  ///< one tap, plain tensors, voxel for voxel: a product of lines without copies
  index_t group = 1;   ///< channel blocks of the source that are held at once
  RegionGrid grid;
  /// Towards the fine side: weights come as the other direction reads them, terms and lanes exchanged, and a region
  /// exchanges its own, which no other one reads.
  bool exchanges = false;
  index_t past_caches_from = conv::past_caches_from();
};

/// Bytes of scratch that run_region() takes; shapes and layouts of the ends decide, not where their data lies.
template <class T>
std::size_t region_scratch_bytes(const VoxelDirection<T>& direction, const Region& region, const RegionEnds<T>& ends);

/// Computes a region, with scratch from `memory` and all weights. Bits of a result depend on neither region nor
/// layouts. Thread-safe for regions that do not overlap.
template <class T>
void run_region(const VoxelDirection<T>& direction, const Region& region, const RegionEnds<T>& ends, const T* weights,
                std::pmr::memory_resource* memory);

}  // namespace convolume::conv
