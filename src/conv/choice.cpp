#include "conv/choice.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "convolume/cpu.hpp"
#include "plan/sides.hpp"

namespace convolume {

const char* name_of(Engine engine) noexcept {
  switch (engine) {
    case Engine::automatic:
      return "automatic";
    case Engine::fft_tiled:
      return "fft_tiled";
    case Engine::fft_volume:
      return "fft_volume";
    case Engine::direct:
      return "direct";
    case Engine::reference:
      return "reference";
    case Engine::onednn:
      return "onednn";
  }
  return "unknown";
}

std::span<const Engine> engines() noexcept {
  static constexpr std::array all{Engine::automatic, Engine::fft_tiled, Engine::fft_volume,
                                  Engine::direct,    Engine::reference, Engine::onednn};
  return all;
}

Engine engine_of(const std::string& name) {
  std::string names;
  for (const Engine engine : engines()) {
    if (name == name_of(engine)) return engine;
    names += fmt::format("{}{}", engine == engines().back() ? " or " : names.empty() ? "" : ", ", name_of(engine));
  }
  throw InvalidArgument(fmt::format("engine '{}' is unknown; use {}", name, names));
}

}  // namespace convolume

namespace convolume::conv {
namespace {

constexpr std::array direction_names{"fwd", "bwd_d", "bwd_w"};
static_assert(direction_names.size() == plan::directions.size());

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw InvalidArgument(
      fmt::format("choice '{}': {}; write the name of an engine, or \"fft_tiled fwd=18x11x15*4 bwd_d=16x16x16*4 "
                  "bwd_w=20x20x20*1\", followed by \"shared\" if all directions use the same tiles, or \"direct "
                  "fwd=NEST bwd_d=NEST bwd_w=NEST\", where a nest has points for spaces",
                  text, why));
}

/// Parses text such as "18x11x15*4", which follows the direction and "=" in a word of a choice.
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

constexpr const char* shared_word = "shared";

/// Parses text such as "c.x.|.kx.c16.x14.k32", which follows the direction and "=" in a word of a choice.
plan::LoopNest parse_nest_word(const std::string& text, const std::string& word, const std::string& direction) {
  if (!word.starts_with(direction + "=")) {
    refuse(text, fmt::format("'{}' does not say the nest of {}", word, direction));
  }
  std::string nest = word.substr(direction.size() + 1);
  std::replace(nest.begin(), nest.end(), '.', ' ');
  return plan::parse_nest(nest);
}

std::string nest_word(const plan::LoopNest& nest) {
  std::string text = plan::to_string(nest);
  std::replace(text.begin(), text.end(), ' ', '.');
  return text;
}

}  // namespace

Choice choice_of(const ConvProblem& problem, const plan::Tilings& tilings) {
  const plan::Sides sides(problem);
  Choice choice{.engine = Engine::fft_tiled, .tiles = plan::TileChoices(), .shared = tilings.shared};
  for (std::size_t i = 0; i < choice.tiles->size(); ++i) {
    const plan::Tiling& tiling = tilings.of(sides.direction(plan::directions[i]));
    (*choice.tiles)[i] = {tiling.tile, tiling.group};
  }
  return choice;
}

std::string to_string(const Choice& choice) {
  std::string text = name_of(choice.engine);
  for (std::size_t i = 0; choice.tiles && i < direction_names.size(); ++i) {
    const auto& [tile, group] = (*choice.tiles)[i];
    text += fmt::format(" {}={}x{}x{}*{}", direction_names[i], tile.z, tile.y, tile.x, group);
  }
  for (std::size_t i = 0; choice.nests && i < direction_names.size(); ++i) {
    text += fmt::format(" {}={}", direction_names[i], nest_word((*choice.nests)[i]));
  }
  return choice.shared ? fmt::format("{} {}", text, shared_word) : text;
}

Choice parse_choice(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
  if (words.empty()) refuse(text, "it is empty");
  Choice choice{.engine = engine_of(words[0])};
  if (choice.engine == Engine::automatic) refuse(text, "'automatic' is not one");
  if (words.size() == 1) return choice;
  if (choice.engine == Engine::direct) {
    if (words.size() != 1 + direction_names.size()) refuse(text, "it has to say the nests of three directions");
    choice.nests.emplace();
    for (std::size_t i = 0; i < direction_names.size(); ++i) {
      (*choice.nests)[i] = parse_nest_word(text, words[1 + i], direction_names[i]);
    }
    return choice;
  }
  if (choice.engine != Engine::fft_tiled) refuse(text, fmt::format("{} has no tiles", words[0]));
  choice.shared = words.back() == shared_word;
  if (choice.shared) words.pop_back();
  if (words.size() != 1 + direction_names.size()) refuse(text, "it has to say the tiles of three directions");
  choice.tiles.emplace();
  for (std::size_t i = 0; i < direction_names.size(); ++i) {
    const auto tiles = parse_tiles(words[1 + i], direction_names[i]);
    if (!tiles) refuse(text, fmt::format("'{}' does not say the tiles of {}", words[1 + i], direction_names[i]));
    (*choice.tiles)[i] = *tiles;
  }
  return choice;
}

plan::Wanted wanted_of(const ConvOptions& options) {
  return {.forward = true, .data = options.want_dx, .weights = options.want_dw};
}

plan::Wanted wanted_of(const ConvProblem& problem, const ConvOptions& options) {
  return plan::Sides(problem).wanted(wanted_of(options));
}

plan::Tilings tilings_of(const ConvProblem& problem, const plan::Wanted& wanted, const std::optional<Choice>& choice,
                         const MachineModel& machine) {
  const plan::Sides sides(problem);
  const ConvProblem& dense = sides.convolution();
  if (!choice || !choice->tiles) return plan::choose_tilings(dense, sides.may_share_tiles(), wanted, machine);
  plan::TileChoices tiles;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    tiles[static_cast<std::size_t>(sides.direction(plan::directions[i]))] = (*choice->tiles)[i];
  }
  return plan::tilings_of(dense, sides.may_share_tiles(), wanted, machine, tiles, choice->shared);
}

plan::Tilings tilings_of(const ConvProblem& problem, const ConvOptions& options, const MachineModel& machine) {
  const auto choice = options.choice.empty() ? std::nullopt : std::optional(parse_choice(options.choice));
  return tilings_of(problem, wanted_of(problem, options), choice, machine);
}

}  // namespace convolume::conv
