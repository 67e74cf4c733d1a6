// HDF5 files. Private to this room.
#pragma once

#include <vector>

#include "nets/io/volume_formats.hpp"

namespace convolume::nets::io::detail {

/// Returns the names of the volumes in a file; none if it is no readable HDF5 file.
std::vector<std::string> hdf5_volumes(const std::filesystem::path& file);

bool writes_hdf5(const VolumePath& path);
void check_hdf5(const VolumePath& path, const SinkOptions& options);
std::unique_ptr<VolumeSink> create_hdf5(const VolumePath& path, const SinkOptions& options);

}  // namespace convolume::nets::io::detail
