// Computes hashes by which debug builds recognise spectra of another tensor.
#pragma once

#include <cstdint>

#include "convolume/tensor.hpp"

namespace convolume::conv {

/// Whether this build checks from which tensor the spectra of a cache were computed. Debug builds do.
#ifdef NDEBUG
inline constexpr bool checks_sources = false;
#else
inline constexpr bool checks_sources = true;
#endif

/// Returns a hash of the voxels of one feature map. If the tensor is blocked, `c` counts channel blocks, and the hash
/// covers one channel block.
std::uint64_t hash_map(const ConstTensorView& tensor, index_t n, index_t c);
/// Returns a hash of all feature maps.
std::uint64_t hash_tensor(const ConstTensorView& tensor);

}  // namespace convolume::conv
