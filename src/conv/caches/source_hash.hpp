// Computes hashes by which spectra of another tensor are recognised.
#pragma once

#include <cstdint>

#include "convolume/tensor.hpp"

namespace convolume::conv {

/// Returns whether passes check from which voxels the spectra of a cache were computed. Debug builds do, and others
/// with CONVOLUME_CHECK_WEIGHTS=1 in the environment.
bool checks_sources() noexcept;

/// Returns a hash of the voxels of one feature map. If the tensor is blocked, `c` counts channel blocks, and the hash
/// covers one channel block.
std::uint64_t hash_map(const ConstTensorView& tensor, index_t n, index_t c);
/// Returns a hash of all feature maps.
std::uint64_t hash_tensor(const ConstTensorView& tensor);

}  // namespace convolume::conv
