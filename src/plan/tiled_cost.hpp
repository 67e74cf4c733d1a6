// The tiled FFT way (DESIGN: overlap-save): which tiles, how many at a time, and what that should take.
#pragma once

#include <array>
#include <vector>

#include "convolume/cpu.hpp"
#include "convolume/plan.hpp"
#include "plan/cost_model.hpp"
#include "plan/lattices.hpp"

namespace convolume::plan {

/// What a product per frequency sums over and yields. All three directions are alike but for these.
enum class Direction { forward, backward_data, backward_weights };
inline constexpr std::array directions{Direction::forward, Direction::backward_data, Direction::backward_weights};

/// Of one core; bytes come from or go to beyond the L2.
struct StageCost {
  double seconds = 0, bytes = 0;
};
struct TiledCost {
  StageCost weights{};     ///< transforms of the weights; inverses of their gradient
  StageCost transforms{};  ///< of tiles, forward and inverse
  StageCost products{};
  double idle = 0;  ///< waiting for another worker

  double seconds() const noexcept { return weights.seconds + transforms.seconds + products.seconds + idle; }
};

/// Tiles of `tile` voxels that yield `valid` = tile - kernel + 1 each, `count` of them along each axis, cover `domain`
/// (y, or dx; of every lattice where stride or dilation make some). `group` tiles are transformed, multiplied and
/// inverted together.
struct TiledWay {
  Extent3 tile{}, valid{}, domain{}, count{};
  index_t group = 1;
  /// Not for backward data: taps along Z are phases of x (Lattices), and tiles are planes.
  bool unfolded = false;
  /// Unfolded: layers of tiles that one task goes through, so that taps share the planes of x that they read. (Sums
  /// that do not fit into the L2 go through chunks of tiles, and share none.)
  index_t planes = 1;
  /// Backward data only: the tiles cover y; what they yield overlaps by kernel - 1 voxels of dx and is added up.
  bool overlap_add = false;
  TiledCost cost{};
};

/// Sums over tiles read lines along Z at a stretch: for planar kernels, which have none, Z and Y are exchanged. Not for
/// depthwise problems, whose channels go alone.
bool exchanges_zy(const ConvProblem& problem);
ConvProblem exchange_zy(ConvProblem problem);

/// Ways for all three directions, that of the weights for exchange_zy(problem) where exchanges_zy(problem): each its
/// own; or the same tiles of y in all (`shared`), so that spectra of x from the forward pass and of dy from backward
/// data serve the weights' gradient.
struct TiledWays {
  TiledWay forward{}, data{}, weights{};
  bool shared = false;
  Wanted wanted{};

  /// Of what is wanted.
  double seconds() const noexcept {
    return one_if(wanted.forward) * forward.cost.seconds() + one_if(wanted.data) * data.cost.seconds() +
           one_if(wanted.weights) * weights.cost.seconds();
  }
  const TiledWay& of(Direction direction) const noexcept {
    return direction == Direction::forward ? forward : direction == Direction::backward_data ? data : weights;
  }
};

// Deterministic all; not for transposed problems; groups are 1 or as many as channels (depthwise: products are of
// lanes). `may_share`: not where dx has an epilogue (it is y of a transposed problem), which sums of tiles cannot have.

/// The best by operations and bytes.
TiledWays choose_tiled_ways(const ConvProblem& problem, bool may_share, const Wanted& wanted,
                            const MachineModel& machine);

/// At most so many, each direction's best first, then the next best of each, and so on; none of them shared. One is
/// left out where a better one of the same direction is like it: no axis of its tile longer or shorter by a fifth, nor
/// twice or half as many tiles in a group.
std::vector<TiledWays> rank_tiled_ways(const ConvProblem& problem, const Wanted& wanted, const MachineModel& machine,
                                       std::size_t most);
/// Likewise of shared tiles, by all directions that are wanted together. Empty where no tiles can be shared, or not all
/// directions are wanted.
std::vector<TiledWays> rank_shared_ways(const ConvProblem& problem, bool may_share, const Wanted& wanted,
                                        const MachineModel& machine, std::size_t most);

/// Of the tiles that share `lanes` of x, how many go together into the weights' gradient where its sums stay in the L2:
/// sums are read and written once per step, and of small tiles of dy more fit beside them.
index_t tiles_of_step(double tile_bytes, index_t lanes, const MachineModel& machine);

/// What is chosen for a direction; the rest of a TiledWay follows from it (unfolded: tiles of one plane, where the
/// kernel has several).
struct TileChoice {
  Extent3 tile{};
  index_t group = 1;
  friend bool operator==(const TileChoice&, const TileChoice&) = default;
};
using TileChoices = std::array<TileChoice, directions.size()>;  ///< one for each of `directions`

/// The ways of given tiles and groups. Throws InvalidArgument where such tiles cannot serve the problem.
TiledWays tiled_ways(const ConvProblem& problem, bool may_share, const Wanted& wanted, const MachineModel& machine,
                     const TileChoices& tiles, bool shared);

}  // namespace convolume::plan
