// Hashes by which debug builds recognise spectra of another tensor.
#pragma once

#include <cstdint>

#include "convolume/tensor.hpp"

namespace convolume::conv {

/// Hash of the voxels of one feature map, or, of a blocked tensor, of one channel block.
std::uint64_t hash_map(const ConstTensorView& tensor, index_t n, index_t c);
/// Hash of all of them.
std::uint64_t hash_tensor(const ConstTensorView& tensor);

}  // namespace convolume::conv
