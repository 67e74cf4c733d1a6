// TIFF stacks. Private to this room.
#pragma once

#include "nets/io/volume_formats.hpp"

namespace convolume::nets::io::detail {

/// Opens a stack. `alone` is false for a file of a folder of slices: the XML of an OME-TIFF, which describes all files
/// of a set, does not count then.
std::unique_ptr<VolumeSource> open_tiff(const VolumePath& path, bool alone = true);
std::unique_ptr<VolumeSink> create_tiff(const VolumePath& path, const SinkOptions& options);
/// Throws InvalidArgument if pages of TIFF cannot hold such voxels.
void check_tiff_type(const VolumePath& path, VoxelType type);
/// Returns whether a file begins with the header of a TIFF.
bool has_tiff_header(std::string_view head);

}  // namespace convolume::nets::io::detail
