#include "conv/spectra/tiled_choice.hpp"

#include <charconv>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "convolume/machine.hpp"
#include "plan/sides.hpp"

namespace convolume::conv {
namespace {

constexpr const char* shared_word = "shared";

/// Parses text such as "18x11x15*4", which follows the direction and "=" in a word of a choice.
std::optional<plan::TileChoice> parse_tile(const std::string& word, const std::string& direction) {
  if (!word.starts_with(direction + "=")) return std::nullopt;
  plan::TileChoice tiles;
  const char *at = word.data() + direction.size() + 1, *end = word.data() + word.size();
  const auto number = [&](index_t& value, char behind) {
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 1) return false;
    if (behind == '\0') return next == end;
    if (next == end || *next != behind) return false;
    at = next + 1;
    return true;
  };
  const bool whole =
      number(tiles.tile.z, 'x') && number(tiles.tile.y, 'x') && number(tiles.tile.x, '*') && number(tiles.group, '\0');
  return whole ? std::optional(tiles) : std::nullopt;
}

}  // namespace

std::string TiledParts::text() const {
  std::string text;
  for (const plan::Direction direction : plan::directions) {
    const auto& [tile, group] = tiles_[static_cast<std::size_t>(direction)];
    text += fmt::format("{}{}={}x{}x{}*{}", text.empty() ? "" : " ", name_of(direction), tile.z, tile.y, tile.x, group);
  }
  return shared_ ? fmt::format("{} {}", text, shared_word) : text;
}

SharedParts TiledParts::with(plan::Direction direction, const ChoiceParts& other) const {
  plan::TileChoices tiles = tiles_;
  const auto d = static_cast<std::size_t>(direction);
  tiles[d] = dynamic_cast<const TiledParts&>(other).tiles_[d];
  return std::make_shared<TiledParts>(tiles);
}

SharedParts parse_tiled_parts(std::span<const std::string> words) {
  const bool shared = !words.empty() && words.back() == shared_word;
  if (shared) words = words.first(words.size() - 1);
  if (words.size() != plan::directions.size()) {
    throw InvalidArgument("it has to say the tiles of three directions");
  }
  plan::TileChoices all;
  for (const plan::Direction direction : plan::directions) {
    const auto i = static_cast<std::size_t>(direction);
    const auto tiles = parse_tile(words[i], name_of(direction));
    if (!tiles) throw InvalidArgument(fmt::format("'{}' does not say the tiles of {}", words[i], name_of(direction)));
    all[i] = *tiles;
  }
  return std::make_shared<TiledParts>(all, shared);
}

SharedParts parts_of(const ConvProblem& problem, const plan::Tilings& tilings) {
  const plan::Sides sides(problem);
  plan::TileChoices tiles;
  for (const plan::Direction direction : plan::directions) {
    const plan::Tiling& tiling = tilings.of(sides.direction(direction));
    tiles[static_cast<std::size_t>(direction)] = {tiling.tile, tiling.group};
  }
  return std::make_shared<TiledParts>(tiles, tilings.shared);
}

plan::Tilings tilings_of(const ConvProblem& problem, const plan::Wanted& wanted, const ChoiceParts* parts,
                         const MachineModel& machine) {
  const plan::Sides sides(problem);
  const ConvProblem& dense = sides.convolution();
  const auto* tiled = dynamic_cast<const TiledParts*>(parts);
  if (tiled == nullptr) return plan::choose_tilings(dense, sides.may_share_tiles(), wanted, machine);
  plan::TileChoices tiles;
  for (const plan::Direction direction : plan::directions) {
    tiles[static_cast<std::size_t>(sides.direction(direction))] = tiled->tiles()[static_cast<std::size_t>(direction)];
  }
  return plan::tilings_of(dense, sides.may_share_tiles(), wanted, machine, tiles, tiled->shared());
}

std::vector<SharedParts> propose_tiles(const ConvProblem& problem, const ConvOptions& options, std::size_t most) {
  const plan::Sides sides(problem);
  const ConvProblem& dense = sides.convolution();
  const plan::Wanted wanted = wanted_of(problem, options);
  std::vector<SharedParts> all;
  for (const auto& tilings : plan::rank_tilings(dense, wanted, machine_model(), most)) {
    all.push_back(parts_of(problem, tilings));
  }
  for (const auto& tilings :
       plan::rank_shared_tilings(dense, sides.may_share_tiles(), wanted, machine_model(), (most + 1) / 2)) {
    all.push_back(parts_of(problem, tilings));
  }
  return all;
}

}  // namespace convolume::conv
