// What training has to know of a label volume: how many voxels each class has, where some of them are, and which voxels
// cannot be used.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <vector>

#include "nets/data/voxel_statistics.hpp"

namespace convolume::nets {

/// The voxels of a class or a region.
struct ClassVoxels {
  std::uint64_t count = 0;
  /// Numbers of voxels, in order: all of them, or the `most_positions` whose numbers have the smallest hashes. Empty
  /// for class 0.
  std::vector<std::uint64_t> positions{};
  friend bool operator==(const ClassVoxels&, const ClassVoxels&) = default;
};
inline constexpr std::size_t most_positions = 10000;
inline constexpr std::size_t most_classes = 256;  ///< voxels of higher classes are not counted

/// A voxel, by its number in [z][y][x].
struct FoundVoxel {
  std::uint64_t index = 0;
  float value = 0;
  friend bool operator==(const FoundVoxel&, const FoundVoxel&) = default;
};

struct LabelSummary {
  std::uint64_t digest = 0;  ///< of the values
  /// By class: a label of 0.5 to 1.5 counts as class 1. Of labels with regions: the voxels of no region, then those of
  /// each region.
  std::vector<ClassVoxels> classes;
  std::uint64_t ignored = 0;   ///< voxels that do not count
  std::vector<bool> listed{};  ///< which of LabelSpec::listed() occur
  /// The first voxels whose value is not listed (NaN), is not a whole number, lies outside of [0, 1], is the largest
  /// one, or is negative. Ignored voxels are left out.
  std::optional<FoundVoxel> not_listed{}, not_whole{}, not_unit{}, largest{}, negative{};
  friend bool operator==(const LabelSummary&, const LabelSummary&) = default;
};

/// Passes once over labels, of one channel and mapped by `spec`. Returns nothing if a stop request came first.
std::optional<LabelSummary> summarise_labels(const VoxelPieces& labels, const LabelSpec& spec, Scheduler* scheduler,
                                             const std::stop_token& stop = {});

}  // namespace convolume::nets
