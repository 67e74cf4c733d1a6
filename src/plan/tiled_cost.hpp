// The tiled FFT way (DESIGN: overlap-save): which tiles, how many at a time, and what that should take.
#pragma once

#include <array>
#include <vector>

#include "convolume/cpu.hpp"
#include "convolume/plan.hpp"

namespace convolume::plan {

/// What a product per frequency sums over and yields. All three directions are alike but for these.
enum class Direction { forward, backward_data, backward_weights };
inline constexpr std::array directions{Direction::forward, Direction::backward_data, Direction::backward_weights};

/// Tiles of `tile` voxels that yield `valid` = tile - kernel + 1 each, `count` of them along each axis, cover `domain`
/// (y, or dx). `group` tiles are transformed, multiplied and inverted together.
struct TiledWay {
  Extent3 tile{}, valid{}, domain{}, count{};
  index_t group = 1;
  double seconds = 0;  ///< one core, transforms of the weights included
};

/// One for each of `directions`.
using TiledWays = std::array<TiledWay, directions.size()>;

/// At most so many ways, the best by operations and bytes first. Deterministic. One is left out where a better one is
/// like it: no axis of its tile longer or shorter by a fifth, nor twice or half as many tiles in a group. Stride and
/// dilation must be 1, groups 1 or as many as channels (depthwise: products are of lanes).
std::vector<TiledWay> rank_tiled_ways(const ConvProblem& problem, Direction direction, const MachineModel& machine,
                                      std::size_t most);

/// The way of a given tile and group. Throws InvalidArgument where such a tile cannot serve the problem.
TiledWay tiled_way(const ConvProblem& problem, Direction direction, const MachineModel& machine, const Extent3& tile,
                   index_t group);

}  // namespace convolume::plan
