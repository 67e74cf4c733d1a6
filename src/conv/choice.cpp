#include "conv/choice.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "conv/engine.hpp"
#include "convolume/cpu.hpp"

namespace convolume::conv {
namespace {

constexpr std::array direction_names{"fwd", "bwd_d", "bwd_w"};
static_assert(direction_names.size() == plan::directions.size());

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw InvalidArgument(
      fmt::format("choice '{}': {}; write an engine, or \"fft_tiled fwd=18x11x15*4 bwd_d=16x16x16*4 bwd_w=20x20x20*1\"",
                  text, why));
}

/// "18x11x15*4" behind "fwd=".
std::optional<TileChoice> parse_tiles(const std::string& word, const std::string& direction) {
  if (!word.starts_with(direction + "=")) return std::nullopt;
  TileChoice tiles;
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

/// Times slower than the best by the cost model: it is not that wrong.
constexpr double hopeless = 8;

}  // namespace

Choice choice_of(Engine engine, const plan::TiledWays& ways) {
  Choice choice{.engine = engine, .tiles = std::array<TileChoice, plan::directions.size()>()};
  for (std::size_t i = 0; i < ways.size(); ++i) (*choice.tiles)[i] = {ways[i].tile, ways[i].group};
  return choice;
}

std::string to_string(const Choice& choice) {
  std::string text = name_of(choice.engine);
  for (std::size_t i = 0; choice.tiles && i < direction_names.size(); ++i) {
    const auto& [tile, group] = (*choice.tiles)[i];
    text += fmt::format(" {}={}x{}x{}*{}", direction_names[i], tile.z, tile.y, tile.x, group);
  }
  return text;
}

Choice parse_choice(const std::string& text) {
  std::istringstream stream(text);
  const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
  if (words.empty()) refuse(text, "it is empty");
  Choice choice{.engine = engine_of(words[0])};
  if (choice.engine == Engine::automatic) refuse(text, "'automatic' is not one");
  if (words.size() == 1) return choice;
  if (choice.engine != Engine::fft_tiled) refuse(text, fmt::format("{} has no tiles", words[0]));
  if (words.size() != 1 + direction_names.size()) refuse(text, "it has to say the tiles of three directions");
  choice.tiles.emplace();
  for (std::size_t i = 0; i < direction_names.size(); ++i) {
    const auto tiles = parse_tiles(words[1 + i], direction_names[i]);
    if (!tiles) refuse(text, fmt::format("'{}' does not say the tiles of {}", words[1 + i], direction_names[i]));
    (*choice.tiles)[i] = *tiles;
  }
  return choice;
}

plan::TiledWays tiled_ways(const ConvProblem& problem, const std::optional<Choice>& choice) {
  plan::TiledWays ways;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const plan::Direction direction = plan::directions[i];
    if (choice && choice->tiles) {
      const auto& [tile, group] = (*choice->tiles)[i];
      ways[i] = plan::tiled_way(problem, direction, machine_model(), tile, group);
    } else {
      ways[i] = plan::rank_tiled_ways(problem, direction, machine_model(), 1).front();
    }
  }
  return ways;
}

std::vector<Choice> candidates(const ConvProblem& problem, const ConvOptions& options, std::size_t tiled) {
  const ConvPlan pick = ConvPlan::make(problem, options);
  std::vector<Choice> choices{parse_choice(pick.choice())};
  if (!options.choice.empty()) return choices;
  for (const Engine engine : automatic_engines) {
    if (options.engine != Engine::automatic || engine == pick.engine()) continue;
    ConvOptions other = options;
    other.engine = engine;
    try {
      const ConvPlan plan = ConvPlan::make(problem, other);
      if (plan.seconds() <= hopeless * pick.seconds()) choices.push_back(parse_choice(plan.choice()));
    } catch (const Unsupported&) {
      // The others serve it.
    }
  }
  const auto has_tiles = [](const Choice& choice) { return choice.tiles.has_value(); };
  if (std::none_of(choices.begin(), choices.end(), has_tiles)) return choices;
  std::array<std::vector<plan::TiledWay>, plan::directions.size()> ranked;
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    ranked[i] = plan::rank_tiled_ways(problem, plan::directions[i], machine_model(), tiled);
  }
  for (std::size_t rank = 1; rank < tiled; ++rank) {
    plan::TiledWays ways;
    for (std::size_t i = 0; i < ways.size(); ++i) ways[i] = ranked[i][std::min(rank, ranked[i].size() - 1)];
    const Choice choice = choice_of(Engine::fft_tiled, ways);
    if (std::find(choices.begin(), choices.end(), choice) == choices.end()) choices.push_back(choice);
  }
  return choices;
}

}  // namespace convolume::conv
