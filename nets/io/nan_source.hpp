// Volumes whose NaN are replaced.
#pragma once

#include <memory>

#include "nets/io/volume_source.hpp"

namespace convolume::nets::io {

/// Reads a volume with each NaN replaced by a number. A volume of integers is returned as it is. Throws InvalidArgument
/// if the voxels cannot hold the number.
std::unique_ptr<VolumeSource> replace_nan(std::unique_ptr<VolumeSource> source, double value);

}  // namespace convolume::nets::io
