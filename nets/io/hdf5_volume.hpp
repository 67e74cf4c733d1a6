// HDF5 files. Private to this room.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "nets/io/volume_formats.hpp"

namespace convolume::nets::io::detail {

/// Throws IoError if a file holds anything that would be lost if the datasets `names` replaced the file: another
/// dataset of any rank, or a link to one. Throws it also if the file is no readable HDF5 file, or holds too much for a
/// search. A file that does not exist holds nothing.
void require_nothing_else(const std::filesystem::path& file, std::span<const std::string> names);

bool writes_hdf5(const VolumePath& path);
void check_hdf5(const VolumePath& path, const SinkOptions& options);
std::unique_ptr<VolumeSink> create_hdf5(const VolumePath& path, const SinkOptions& options);

}  // namespace convolume::nets::io::detail
