// Computes one region of a direct convolution whose kernel is one voxel and whose target is plain: as products of
// lines, whose lanes are voxels.
#pragma once

#include <memory_resource>

#include "conv/direct/direct_region.hpp"

namespace convolume::conv {

/// Returns whether run_lines() computes the regions of these tensors.
template <class T>
bool runs_lines(const VoxelDirection<T>& direction, const DirectionTensors<T>& tensors) {
  return direction.lines && tensors.gradient == nullptr;
}

/// Returns the bytes of scratch that run_lines() takes at most: for the bias values, and for voxels that are copied.
template <class T>
std::size_t line_scratch_bytes(const VoxelDirection<T>& direction, const Region& region);

/// Computes a region, like run_region(), with the same bits as products of blocks.
template <class T>
void run_lines(const VoxelDirection<T>& direction, const Region& region, const DirectionTensors<T>& tensors,
               const T* weights, std::pmr::memory_resource* memory);

}  // namespace convolume::conv
