// What decides how a problem is convolved, as text: "direct", or "fft_tiled fwd=18x11x15*4 bwd_d=16x16x16*4
// bwd_w=20x20x20*1", which are the tile of each direction and how many of them make a group; behind them "shared" where
// the directions share tiles.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "convolume/conv.hpp"
#include "plan/tiled_cost.hpp"

namespace convolume::conv {

using plan::TileChoice;

struct Choice {
  Engine engine = Engine::reference;
  /// For each of plan::directions, of the plan that is chosen for (transposed ones have forward and backward data
  /// exchanged); of engines that tile. Where groups of channels go one after the other, of one of them. Of the weights
  /// of a planar kernel Z and Y are exchanged (plan::exchanges_zy).
  std::optional<plan::TileChoices> tiles{};
  bool shared = false;  ///< plan::TiledWays::shared
  friend bool operator==(const Choice&, const Choice&) = default;

  bool tiles_apart() const { return tiles && !shared; }
};

/// Of a problem that is not cut into groups any more, as in tiled_ways().
Choice choice_of(const ConvProblem& problem, const plan::TiledWays& ways);
std::string to_string(const Choice& choice);
/// Reads what to_string() wrote. Throws InvalidArgument naming the word that makes no sense.
Choice parse_choice(const std::string& text);

/// What `options` want; of untransposed(problem) where one is given.
plan::Wanted wanted_of(const ConvOptions& options);
plan::Wanted wanted_of(const ConvProblem& problem, const ConvOptions& options);

/// The ways of `choice`, or where there is none the best ones for what is wanted; of untransposed(problem).
plan::TiledWays tiled_ways(const ConvProblem& problem, const plan::Wanted& wanted, const std::optional<Choice>& choice,
                           const MachineModel& machine);

}  // namespace convolume::conv
