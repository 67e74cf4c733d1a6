// The tiled FFT way (DESIGN: overlap-save): which tiles, how many at a time, and what that should take.
#pragma once

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
  double seconds = 0;  ///< one core, transforms of the weights included
};

/// The best way by operations and bytes. Deterministic. Not for transposed problems; groups are 1 or as many as
/// channels (depthwise: products are of lanes).
TiledWay choose_tiled_way(const ConvProblem& problem, Direction direction, const MachineModel& machine);

}  // namespace convolume::plan
