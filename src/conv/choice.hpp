// What decides how a problem is convolved, as text: "direct", or "fft_tiled fwd=18x11x15*4 bwd_d=16x16x16*4
// bwd_w=20x20x20*1", which are the tile of each direction and how many of them make a group.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "convolume/conv.hpp"
#include "plan/tiled_cost.hpp"

namespace convolume::conv {

struct TileChoice {
  Extent3 tile{};
  index_t group = 1;
  friend bool operator==(const TileChoice&, const TileChoice&) = default;
};

struct Choice {
  Engine engine = Engine::reference;
  /// For each of plan::directions; of engines that tile.
  std::optional<std::array<TileChoice, plan::directions.size()>> tiles{};
  friend bool operator==(const Choice&, const Choice&) = default;
};

Choice choice_of(Engine engine, const plan::TiledWays& ways);
std::string to_string(const Choice& choice);
/// Reads what to_string() wrote. Throws InvalidArgument naming the word that makes no sense.
Choice parse_choice(const std::string& text);

/// The ways of `choice`, or where there is none the best ones.
plan::TiledWays tiled_ways(const ConvProblem& problem, const std::optional<Choice>& choice);

/// Choices that are worth measuring, the one of the cost model first. Of fft_tiled at most so many: the best tiles of
/// all directions together, then the next best of all directions, and so on.
std::vector<Choice> candidates(const ConvProblem& problem, const ConvOptions& options, std::size_t tiled);

}  // namespace convolume::conv
