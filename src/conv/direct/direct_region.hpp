// Computes one region of a direct convolution's results, forward or backward data.
#pragma once

#include <memory_resource>

#include "conv/direct/direct_nest.hpp"
#include "conv/direct/direct_product.hpp"
#include "conv/direct/line_product.hpp"
#include "conv/taps/tap_geometry.hpp"
#include "conv/tensor_io/block_box.hpp"
#include "conv/tensor_io/direction_tensors.hpp"
#include "conv/weights/weight_blocks.hpp"
#include "ops/activation.hpp"

namespace convolume::conv {

/// One direction that yields voxels, y or dx. Terms are channels of its source (reduction channels). Lanes are channels
/// of its results.
template <class T>
struct VoxelDirection {
  /// `nest` is that of `direction` of `problem`. Throws Unsupported if the engine has no such microkernel.
  VoxelDirection(const ConvProblem& problem, plan::Direction direction, const plan::LoopNest& nest);

  DirectMap map;
  WeightBlocks<T> weights;
  Layout source_layout, target_layout;
  /// Blocked sources are read in place even if windows reach into the padding, because products leave the padding out.
  bool leaves_out_padding = false;
  /// One tap, equal extents, a plain target, and a plain source or few results: computed by LineProduct.
  bool lines = false;
  bool patches = false;  ///< each source voxel has a box of results of its own: computed by run_patches()
  VoxelNest nest;
  std::vector<std::vector<StepPlace>> step_orders;  ///< of order_steps()
  /// All products sum rows of taps for the only block of results. They read channels of a plain source without
  /// transposing them.
  bool tap_rows_only = false;
  /// Backward data: the packed weights are in forward order, so each region transposes terms and lanes of its own
  /// blocks. This is done only if no other region reads the same blocks, and not for patches.
  bool transposes_weights = false;
  /// A region can pack the weights that it reads, a few term blocks at a time: no other region reads them, and all its
  /// reads of a weight follow each other. There are several regions, so that several threads can pack. Kernels of one
  /// voxel are packed faster all at once.
  bool can_pack = false;
  index_t non_temporal_from = conv::non_temporal_from();
  VoxelKernel<T> single_taps = voxel_kernel<T>();
  VoxelKernel<T> taps_of_channel = channel_voxel_kernel<T>();
  VoxelKernel<T> tap_rows = tap_row_kernel<T>();
  LineProductKernels<T> line_products = line_product_kernels<T>();
  BoxKernels<T> boxes = box_kernels<T>();
  WeightKernels<T> squares = weight_kernels<T>();
  ops::ActivationKernels<T> activations = ops::activation_kernels<T>();
};

/// The weights of all channels: packed, or as a tensor that regions pack themselves, if VoxelDirection::can_pack. The
/// rows of the tensor are lanes and its columns are terms of the direction.
template <class T>
struct RegionWeights {
  const T* packed = nullptr;
  View<const T> tensor{};
};

/// Returns the bytes of scratch that run_region() takes. `packs` says whether the region packs its weights. The bytes
/// depend on the shapes and layouts of `tensors`, not on the addresses of the data.
template <class T>
std::size_t region_scratch_bytes(const VoxelDirection<T>& direction, const Region& region,
                                 const DirectionTensors<T>& tensors, bool packs);

/// Computes a region. Takes scratch from `memory`. The bits of a result depend neither on the region nor on the
/// layouts, nor on who packs the weights. Thread-safe for regions that do not overlap.
template <class T>
void run_region(const VoxelDirection<T>& direction, const Region& region, const DirectionTensors<T>& tensors,
                const RegionWeights<T>& weights, std::pmr::memory_resource* memory);

}  // namespace convolume::conv
