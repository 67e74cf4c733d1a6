// The tiled FFT engine (overlap-save): the choice of tiles and group sizes, and their estimated cost.
#pragma once

#include <array>
#include <vector>

#include "convolume/conv_problem.hpp"
#include "convolume/machine.hpp"
#include "plan/cost_model.hpp"
#include "plan/polyphase.hpp"

namespace convolume::plan {

/// Returns whether a tensor has so few channels that, if it is plain, tiles instead of channels fill the lanes.
inline bool tiles_fill_lanes(index_t channels, DataType type) noexcept { return 2 * channels < channel_block(type); }

/// The cost of a stage on one core. `bytes` is the traffic beyond the L2.
struct StageCost {
  double seconds = 0, bytes = 0;
};
struct TiledCost {
  StageCost weights{};     ///< transforms of the weights, or inverses of their gradient
  StageCost transforms{};  ///< of tiles, forward and inverse
  StageCost products{};
  double idle = 0;  ///< waiting for another worker

  double seconds() const noexcept { return weights.seconds + transforms.seconds + products.seconds + idle; }
};

/// Limit for the tiles of a group.
inline constexpr index_t most_tiles_of_group = 24;

/// A tiling. Tiles of `tile` voxels yield valid = tile - kernel + 1 voxels each, unless one tile covers the axis.
/// `count` tiles along each axis cover `domain` (y or dx, or each of their polyphase components). `group` tiles are
/// transformed, multiplied and inverted together.
struct Tiling {
  Extent3 tile{}, valid{}, domain{}, count{};
  index_t group = 1;
  /// Z is unrolled into channels (im2col along Z): taps along Z are phases of x (Polyphase), and tiles are planes. Not
  /// for backward data.
  bool z_unrolled = false;
  /// If `z_unrolled`: layers of tiles that one task handles, so that their taps share planes of x. (Sums that do not
  /// fit into the L2 are computed in chunks of tiles, which share no planes.)
  index_t planes = 1;
  /// Backward data only: the tiles cover y. Their results overlap by kernel - 1 voxels of dx and are added.
  bool overlap_add = false;
  TiledCost cost{};
};

/// Returns whether Z and Y are swapped for the weight gradient. The weight gradient streams lines along Z, and planar
/// kernels have no such lines. Depthwise problems are excluded, because each of their channels is handled separately.
bool swaps_zy(const ConvProblem& problem);
ConvProblem swap_zy(ConvProblem problem);

/// The tilings of all three directions. The tiling of the weight gradient is for swap_zy(problem) if
/// swaps_zy(problem). The directions have separate tilings, or they share the same tiles of y (`shared`). In the
/// second case the weight gradient reuses the spectra of x from the forward pass and those of dy from backward data.
struct Tilings {
  Tiling forward{}, data{}, weights{};
  bool shared = false;
  Wanted wanted{};

  /// Returns the estimated seconds of all wanted directions.
  double seconds() const noexcept {
    return one_if(wanted.forward) * forward.cost.seconds() + one_if(wanted.data) * data.cost.seconds() +
           one_if(wanted.weights) * weights.cost.seconds();
  }
  const Tiling& of(Direction direction) const noexcept {
    return direction == Direction::forward ? forward : direction == Direction::backward_data ? data : weights;
  }
};

// All functions below are deterministic. Problems must not be transposed; groups must be 1 or the number of channels
// (depthwise, where products are per lane). `may_share` must be false if dx has an epilogue (dx is then the y of a
// transposed problem), because partial sums of tiles cannot have an epilogue.

/// Returns the best tilings by estimated operations and bytes.
Tilings choose_tilings(const ConvProblem& problem, bool may_share, const Wanted& wanted, const MachineModel& machine);

/// Returns at most `most` sets of separate tilings: the best tiling of each direction first, then the second best of
/// each, and so on. A tiling is left out if it is similar to a better tiling of the same direction: every axis of its
/// tile differs by less than a fifth, and its group size by less than a factor of two.
std::vector<Tilings> rank_tilings(const ConvProblem& problem, const Wanted& wanted, const MachineModel& machine,
                                  std::size_t most);
/// Returns the same for shared tiles, ranked by the total time of all wanted directions. Returns nothing if tiles
/// cannot be shared or not all directions are wanted.
std::vector<Tilings> rank_shared_tilings(const ConvProblem& problem, bool may_share, const Wanted& wanted,
                                         const MachineModel& machine, std::size_t most);

/// Returns how many of the `lanes` tiles that share the lanes of x are added together to the weight gradient, if its
/// sums stay in the L2. Sums are read and written once per step. The smaller the tiles of dy, the more of them fit
/// beside the sums.
index_t tiles_of_step(double tile_bytes, index_t lanes);

/// The choice for one direction. The rest of a Tiling follows from it. (Z is unrolled into channels if tiles are
/// planes and the kernel has several.)
struct TileChoice {
  Extent3 tile{};
  index_t group = 1;
  friend bool operator==(const TileChoice&, const TileChoice&) = default;
};
using TileChoices = std::array<TileChoice, directions.size()>;  ///< one for each of `directions`

/// Returns the tilings for given tiles and groups. Throws InvalidArgument if such tiles do not fit the problem.
Tilings tilings_of(const ConvProblem& problem, bool may_share, const Wanted& wanted, const MachineModel& machine,
                   const TileChoices& tiles, bool shared);

}  // namespace convolume::plan
