// Divides the output of an inference into columns that fit into memory.
#pragma once

#include <cstddef>
#include <vector>

#include "nets/infer/blender.hpp"
#include "nets/io/volume_sink.hpp"

namespace convolume::nets {

/// What decides how many bytes an inference holds.
struct InferenceNeeds {
  const PatchGrid& grid;
  io::VoxelBox region;           ///< in the volume
  const io::VolumeInfo& volume;  ///< what is read
  index_t channels;              ///< probabilities of a voxel
  io::SinkOptions stored;        ///< what is written
  int threads;
  std::size_t fixed;  ///< bytes that do not depend on the columns: program, net, parameters
};

struct InferenceWindows {
  std::vector<io::VoxelBox> columns;  ///< cover the region, each with whole chunks of the output
  std::size_t bytes = 0;              ///< largest number of bytes that the inference holds
  index_t patches = 0;                ///< patches that are computed; those of two columns count twice
};

/// Returns the columns that fit into `memory` bytes and compute the fewest patches twice. Throws InvalidArgument that
/// names the least memory if there are none.
InferenceWindows choose_windows(const InferenceNeeds& needs, std::size_t memory);

}  // namespace convolume::nets
