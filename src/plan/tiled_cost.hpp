// The tiled FFT way (DESIGN: overlap-save): which tiles, how many at a time, and what that should take.
#pragma once

#include <vector>

#include "convolume/cpu.hpp"
#include "convolume/plan.hpp"
#include "plan/lattices.hpp"

namespace convolume::plan {

/// What a product per frequency sums over and yields. All three directions are alike but for these.
enum class Direction { forward, backward_data, backward_weights };

/// Tiles of `tile` voxels that yield `valid` = tile - kernel + 1 each, `count` of them along each axis, cover `domain`
/// (y, or dx; of every lattice where stride or dilation make some). `group` tiles are transformed, multiplied and
/// inverted together.
struct TiledWay {
  Extent3 tile{}, valid{}, domain{}, count{};
  index_t group = 1;
  /// Backward data only: the tiles cover y; what they yield overlaps by kernel - 1 voxels of dx and is added up.
  bool overlap_add = false;
  double seconds = 0;  ///< one core, transforms of the weights included
};

/// The best way by operations and bytes. Deterministic. Not for transposed problems; groups are 1 or as many as
/// channels (depthwise: products are of lanes).
TiledWay choose_tiled_way(const ConvProblem& problem, Direction direction, const MachineModel& machine);

/// Sums over tiles read lines along Z at a stretch: for planar kernels, which have none, Z and Y are exchanged.
bool exchanges_zy(const ConvProblem& problem);
ConvProblem exchange_zy(ConvProblem problem);

/// Ways for all three directions: each its own best; or the same tiles of y in all (`shared`), so that spectra of x
/// from the forward pass and of dy from backward data serve the weights' gradient.
struct TiledWays {
  TiledWay forward{}, data{}, weights{};
  bool shared = false;

  double seconds() const noexcept { return forward.seconds + data.seconds + weights.seconds; }
};

/// `may_share`: not where dx has an epilogue (it is y of a transposed problem), which sums of tiles cannot have.
TiledWays choose_tiled_ways(const ConvProblem& problem, bool may_share, const MachineModel& machine);

/// Pieces of a grid of tiles whose results overlap, and the order in which neighbours are added up: layers from both
/// ends towards the middle, so that what they have in common is still in the caches; in a layer, even pieces before odd
/// ones; in a piece, tiles in their order.
struct OverlapOrder {
  Extent3 count{};  ///< tiles
  Extent3 piece{};  ///< tiles of a piece: whole rows of a layer, or a part of one

  OverlapOrder() = default;
  OverlapOrder(const Extent3& tiles, index_t group);
  Extent3 pieces() const noexcept;
  /// Whether a tile at `a` along an axis goes before one at `b`.
  bool goes_before(int axis, index_t a, index_t b) const noexcept;
  /// Layers in their order.
  std::vector<index_t> layers() const;
};

}  // namespace convolume::plan
