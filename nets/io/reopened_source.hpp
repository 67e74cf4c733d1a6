// Volumes whose files are open only while they are read.
#pragma once

#include <memory>

#include "nets/io/volume_source.hpp"

namespace convolume::nets::io {

/// Opens a volume, and closes its file. Each read opens the file again, so thousands of volumes need no more file
/// descriptors than threads. Throws what open_volume() throws; a read throws IoError if the file has changed.
std::unique_ptr<VolumeSource> open_for_each_read(const VolumePath& path);

}  // namespace convolume::nets::io
