// Computes one region of a direct convolution from patches: the results of each source voxel are a box of their own, as
// large as the kernel, and have few channels. Lanes are the voxels of the box.
#pragma once

#include <memory_resource>

#include "conv/direct/direct_region.hpp"

namespace convolume::conv {

/// Returns whether run_patches() can compute the regions of a direction: its strides equal its kernel without padding
/// before it, the source is blocked, the target is plain and has few channels.
template <class T>
bool are_patches(const VoxelDirection<T>& direction);

/// Returns whether run_patches() computes the regions of these tensors.
template <class T>
bool runs_patches(const VoxelDirection<T>& direction, const DirectionTensors<T>& tensors) {
  return direction.patches && tensors.gradient == nullptr && !tensors.add &&
         tensors.activation.kind == Activation::Kind::none;
}

/// Returns the bytes of scratch that run_patches() takes.
template <class T>
std::size_t patch_scratch_bytes(const VoxelDirection<T>& direction, const DirectionTensors<T>& tensors);

/// Computes a region, like run_region(), with the same bits as products whose lanes are channels.
template <class T>
void run_patches(const VoxelDirection<T>& direction, const Region& region, const DirectionTensors<T>& tensors,
                 const T* weights, std::pmr::memory_resource* memory);

}  // namespace convolume::conv
