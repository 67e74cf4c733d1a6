// What is stored of the probabilities that a net computes.
#pragma once

#include <cstddef>
#include <string>

#include "nets/io/volume_sink.hpp"

namespace convolume::nets {

/// What is stored of the probabilities of a voxel.
enum class Stored {
  probabilities,  ///< float32
  bytes,          ///< probabilities as uint8, 0..255
  classes,        ///< the number of the most probable class
  binary          ///< uint8: for each channel, 1 from probability 0.5 on, else 0
};

/// Returns the channels and the type of the stored voxels of a net with so many output channels.
io::SinkOptions stored_as(Stored stored, index_t channels, const Extent3& extent);

/// Probabilities of neighbouring voxels: that of channel c of voxel v is values[c * stride + v].
struct ProbabilityRow {
  const float* values = nullptr;
  index_t stride = 0, channels = 1, count = 0;
};

/// Stores one channel of the voxels of a row. Returns the number of the first voxel whose probability is NaN and cannot
/// be stored, or the count.
index_t store_row(const ProbabilityRow& row, index_t channel, Stored stored, io::VoxelType type, std::byte* to);

/// Throws NumericalError for such a voxel of the output `name`.
[[noreturn]] void fail_nan(const std::string& name, const Extent3& voxel, io::VoxelType type);

}  // namespace convolume::nets
