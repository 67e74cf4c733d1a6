// Copies voxels from one volume to another one.
#pragma once

#include <cstddef>
#include <functional>

#include "nets/io/volume_sink.hpp"
#include "nets/io/volume_source.hpp"

namespace convolume::nets::io {

/// Fills a sink with the voxels of a source that begin at `begin` and at a channel, in the order of the file that is
/// written. Voxels are converted to the type of the sink. About `bytes` are read at once. `progress` receives the
/// finished share in 0..1. Throws InvalidArgument if a voxel does not fit the type (it is named), and what reading and
/// writing throw.
void copy_volume(const VolumeSource& source, VolumeSink& sink, const Extent3& begin, index_t first_channel,
                 const std::function<void(double)>& progress = {}, std::size_t bytes = std::size_t{64} << 20);

/// Returns the geometry of a part that begins at a voxel: its origin moves.
std::optional<Geometry> geometry_of_part(std::optional<Geometry> geometry, const Extent3& begin);

}  // namespace convolume::nets::io
