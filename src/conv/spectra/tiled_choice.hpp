// The parts of a choice that are tiles: "fwd=18x11x15*4 bwd_d=16x16x16*4 bwd_w=20x20x20*1" gives the tile of each
// direction and the number of tiles in a group. The text ends with "shared" if the directions share tiles.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "conv/choice.hpp"
#include "plan/tiled_cost.hpp"

namespace convolume::conv {

class TiledParts final : public ChoiceParts {
 public:
  /// The tiles of the directions of the problem itself, in the order of plan::directions. If groups of channels are
  /// computed one after the other, these are the tiles of one group. If the kernel is planar, Z and Y of the weight
  /// gradient's tile are swapped (plan::swaps_zy). `shared`: see plan::Tilings.
  explicit TiledParts(const plan::TileChoices& tiles, bool shared = false) : tiles_(tiles), shared_(shared) {}

  const plan::TileChoices& tiles() const { return tiles_; }
  bool shared() const { return shared_; }
  std::string text() const override;
  bool separate() const override { return !shared_; }
  SharedParts with(plan::Direction direction, const ChoiceParts& other) const override;

 private:
  plan::TileChoices tiles_;
  bool shared_;
};

/// How messages show the text of these parts.
inline constexpr const char* tiled_form =
    "\"fft_tiled fwd=18x11x15*4 bwd_d=16x16x16*4 bwd_w=20x20x20*1\", followed by \"shared\" if all directions use the "
    "same tiles";
/// Reads the words that text() returns. Throws InvalidArgument that names the invalid word.
SharedParts parse_tiled_parts(std::span<const std::string> words);

/// Returns the parts with the given tilings. They belong to the directions of plan::Sides::convolution(). If groups of
/// channels are computed one after the other, `problem` is one group, as in tilings_of().
SharedParts parts_of(const ConvProblem& problem, const plan::Tilings& tilings);
/// Returns the tilings of a choice for the directions of plan::Sides::convolution(). Without parts, returns the best
/// tilings for the wanted directions.
plan::Tilings tilings_of(const ConvProblem& problem, const plan::Wanted& wanted, const ChoiceParts* parts,
                         const MachineModel& machine);
/// Returns parts that are worth measuring, the best first: at most `most` with separate tiles, and half as many
/// (rounded up) with shared tiles. See Implementation::propose().
std::vector<SharedParts> propose_tiles(const ConvProblem& problem, const ConvOptions& options, std::size_t most);

}  // namespace convolume::conv
