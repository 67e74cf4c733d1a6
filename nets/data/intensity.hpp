// Finds the scaling of a volume's intensities.
#pragma once

#include <string>

#include "nets/data/dataset_spec.hpp"
#include "nets/data/voxel_statistics.hpp"

namespace convolume::nets {

/// Statistics of one volume, or of all volumes of a data set, and the percentiles per channel if the settings need
/// them.
struct IntensityStatistics {
  VoxelStatistics voxels;
  std::vector<std::array<double, 2>> percentiles{};
};

/// Computes what `spec` needs of a volume. Returns nothing if a stop request came first.
std::optional<IntensityStatistics> intensity_statistics(const VoxelPieces& voxels, const IntensitySpec& spec,
                                                        Scheduler* scheduler, const std::stop_token& stop = {});

/// Returns the scaling that follows from the statistics. If all voxels of a channel are equal, it throws ConfigError
/// that names `name`. Without a name, they become 0.
VolumeScaling scaling_of(const IntensityStatistics& statistics, const IntensitySpec& spec,
                         const std::string& name = "");

/// Scales a volume in memory by its own statistics.
void normalise(StoredVolume& volume, const IntensitySpec& spec = {}, Scheduler* scheduler = nullptr);

/// What a checkpoint stores: the settings and, for `dataset`, the scaling. As text in JSON.
std::string intensity_text(const IntensitySpec& spec, const VolumeScaling& of_dataset);
/// Reads such a text. Throws FormatError naming `file`.
std::pair<IntensitySpec, VolumeScaling> parse_intensity(const std::string& text, const std::string& file);

}  // namespace convolume::nets
