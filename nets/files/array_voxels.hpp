// Reads what a user says about voxels in memory.
#pragma once

#include "convolume/volumes.hpp"
#include "nets/io/array_source.hpp"

namespace convolume::nets {

/// Checks an array. Throws InvalidArgument for a null address, an unknown type, or an axis without voxels.
io::ArrayVoxels voxels_of(const ArrayView& array);

}  // namespace convolume::nets
