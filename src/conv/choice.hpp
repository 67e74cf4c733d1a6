// Everything that decides how a problem is convolved, also as text. Examples: "reference", "fft_tiled fwd=18x11x15*4
// bwd_d=16x16x16*4 bwd_w=20x20x20*1", or "direct fwd=n*.y*.c.x.|.kz.ky.kx.c16.x14.k32 bwd_d=... bwd_w=...". The second
// text gives the tile of each direction and the number of tiles in a group. It ends with "shared" if the directions
// share tiles. The third text gives the loop nest of each direction, with points for spaces.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "convolume/conv.hpp"
#include "convolume/nest.hpp"
#include "plan/tiled_cost.hpp"

namespace convolume::conv {

using plan::TileChoice;

/// The loop nests of all directions of a problem, in the order of plan::directions.
using Nests = std::array<plan::LoopNest, plan::directions.size()>;

struct Choice {
  Engine engine = Engine::reference;
  /// The tiles of the directions of the problem itself, in the order of plan::directions; only for fft_tiled. If groups
  /// of channels are computed one after the other, these are the tiles of one group. If the kernel is planar, Z and Y
  /// of the weight gradient's tile are swapped (plan::swaps_zy).
  std::optional<plan::TileChoices> tiles{};
  bool shared = false;  ///< plan::Tilings::shared
  /// Only for direct. If groups of channels are computed one after the other, these are the nests of one group.
  std::optional<Nests> nests{};
  friend bool operator==(const Choice&, const Choice&) = default;

  bool has_separate_tiles() const { return tiles && !shared; }
  /// Returns whether the parts of the directions, tiles or nests, can be exchanged one by one.
  bool has_separate_parts() const { return has_separate_tiles() || nests; }
};

/// Returns the choice with the given tilings. They belong to the directions of plan::Sides::convolution(). If groups of
/// channels are computed one after the other, `problem` is one group, as in tilings_of().
Choice choice_of(const ConvProblem& problem, const plan::Tilings& tilings);
std::string to_string(const Choice& choice);
/// Parses the text that to_string() returns. Throws InvalidArgument that names the invalid word.
Choice parse_choice(const std::string& text);

/// Return the directions that `options` want. If the problem is passed, the directions are mapped to
/// plan::Sides::convolution().
plan::Wanted wanted_of(const ConvOptions& options);
plan::Wanted wanted_of(const ConvProblem& problem, const ConvOptions& options);

/// Returns the tilings of `choice` for the directions of plan::Sides::convolution(). Without a choice, returns the best
/// tilings for the wanted directions.
plan::Tilings tilings_of(const ConvProblem& problem, const plan::Wanted& wanted, const std::optional<Choice>& choice,
                         const MachineModel& machine);
/// Returns the tilings of `options.choice`, or the best ones if it is empty.
plan::Tilings tilings_of(const ConvProblem& problem, const ConvOptions& options, const MachineModel& machine);

}  // namespace convolume::conv
