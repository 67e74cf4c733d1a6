// Several volumes read as the channels of one.
#pragma once

#include <vector>

#include "nets/io/volume_source.hpp"

namespace convolume::nets::io {

/// Joins volumes of equal extent: first all channels of the first one, then those of the second, and so on. If their
/// types differ, voxels are read as float32 if that type holds every voxel exactly, and as float64 otherwise. Spacing
/// and geometry are those of the first volume. Throws ShapeMismatch that names two files of different extent or
/// geometry. `parts` is not empty.
std::unique_ptr<VolumeSource> stack_channels(std::vector<std::unique_ptr<VolumeSource>> parts);

}  // namespace convolume::nets::io
