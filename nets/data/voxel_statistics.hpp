// Statistics of voxels, in fixed blocks and along a fixed tree: the same bits on any number of threads, whether a
// volume lies in memory or is read piece by piece.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "convolume/scheduler.hpp"
#include "nets/data/stored_volume.hpp"

namespace convolume::nets {

/// Edge of the blocks in which voxels are summed.
inline constexpr index_t statistics_block = 64;

/// Number of values, their mean, and the sum of squared differences from it.
struct Moments {
  double count = 0, mean = 0, squares = 0;
  /// Joins two sets of values (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
  /// sample variances", 1979).
  Moments joined(const Moments& other) const noexcept;
  double deviation() const noexcept;  ///< of the whole population; 0 if there is no value
};

/// The voxels of a volume. They can be passed over several times, in pieces that consist of whole blocks.
struct VoxelPieces {
  /// Takes a piece of all channels, and where it lies. Returns false to end the pass.
  using Visit = std::function<bool(const StoredVolume& piece, const io::VoxelBox& box)>;
  index_t channels = 1;
  Extent3 extent{0, 0, 0};
  io::VoxelType type = io::VoxelType::float32;
  std::function<bool(const Visit&)> for_each;  ///< returns false if a visit did
};

/// Returns a volume in memory as one piece. The volume must outlive the result.
VoxelPieces pieces_of(const StoredVolume& volume);
/// Returns pieces of about `bytes` bytes that `read` reads. Pieces consist of whole chunks of the file, unless these
/// are larger than `bytes`.
VoxelPieces pieces_of(const io::VolumeInfo& info, const io::VoxelBox& box, std::size_t bytes,
                      std::function<StoredVolume(const io::VoxelBox&)> read);

/// Calls body(block, box) for each block of a piece, as tasks if there is a scheduler. `box` is the part of the piece's
/// volume that the block has, and `block` its number in the whole volume. Returns false if a stop request came first.
bool for_each_block(const Extent3& volume, const io::VoxelBox& piece, Scheduler* scheduler, const std::stop_token& stop,
                    const std::function<void(std::size_t block, const io::VoxelBox& box)>& body);
/// Returns the number of blocks of a volume.
std::size_t blocks_of(const Extent3& volume);

struct StatisticsOptions {
  bool nonzero = false;                           ///< only voxels that are not 0
  bool slices = false;                            ///< also per slice
  std::vector<std::pair<double, double>> clip{};  ///< limits to which voxels of each channel are clipped; or empty
};

struct VoxelStatistics {
  struct Channel {
    Moments moments;
    double least = 0, largest = 0;
  };
  std::vector<Channel> channels;
  std::vector<Moments> slices;  ///< [c][z], if they were asked for
  std::uint64_t digest = 0;     ///< of the stored voxels, their type and the extent
};

/// Computes statistics in one pass. Returns nothing if a stop request came first.
std::optional<VoxelStatistics> statistics_of(const VoxelPieces& voxels, const StatisticsOptions& options,
                                             Scheduler* scheduler, const std::stop_token& stop = {});

/// Returns percentiles of a channel over all volumes together: exactly numpy.percentile(..., method="linear") of the
/// voxels as double. `percents` lie in [0, 100]. Takes one pass over the voxels per two bytes of the widest type.
/// Returns nothing if a stop request came first, and NaN if there is no voxel.
std::optional<std::vector<double>> percentiles_of(std::span<const VoxelPieces> volumes, index_t channel,
                                                  std::span<const double> percents, bool nonzero, Scheduler* scheduler,
                                                  const std::stop_token& stop = {});

}  // namespace convolume::nets
