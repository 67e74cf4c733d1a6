#include "conv/candidates.hpp"

#include <algorithm>

#include "conv/direct/direct_nest.hpp"
#include "conv/implementations.hpp"
#include "plan/sides.hpp"

namespace convolume::conv {
namespace {

/// An engine is not measured if its estimate is longer than the best estimate by more than this factor. The cost model
/// is not wrong by so much.
constexpr double hopeless = 8;

/// Returns choices of fft_tiled, best first: those with separate tiles, then those with shared tiles.
std::vector<Choice> tiled_candidates(const ConvProblem& problem, const ConvOptions& options, std::size_t most) {
  const ConvProblem one = problem.groups > 1 && !is_depthwise(problem) ? one_group(problem) : problem;
  const plan::Sides sides(one);
  const ConvProblem& dense = sides.convolution();
  const plan::Wanted wanted = wanted_of(problem, options);
  std::vector<Choice> choices;
  for (const auto& tilings : plan::rank_tilings(dense, wanted, machine_model(), most)) {
    choices.push_back(choice_of(one, tilings));
  }
  for (const auto& tilings :
       plan::rank_shared_tilings(dense, sides.may_share_tiles(), wanted, machine_model(), (most + 1) / 2)) {
    choices.push_back(choice_of(one, tilings));
  }
  return choices;
}

/// Returns choices of direct, best first. A direction with fewer nests repeats its last one.
std::vector<Choice> nest_choices(const ConvProblem& problem, std::size_t most) {
  const ConvProblem one = problem.groups > 1 ? one_group(problem) : problem;
  std::array<std::vector<RankedNest>, plan::directions.size()> ranked;
  std::size_t count = 0;
  for (std::size_t d = 0; d < ranked.size(); ++d) {
    ranked[d] = rank_nests(one, plan::directions[d], machine_model());
    count = std::max(count, std::min(most, ranked[d].size()));
  }
  std::vector<Choice> choices;
  for (std::size_t i = 0; i < count; ++i) {
    Nests nests;
    for (std::size_t d = 0; d < ranked.size(); ++d) nests[d] = ranked[d][std::min(i, ranked[d].size() - 1)].nest;
    choices.push_back({.engine = Engine::direct, .nests = std::move(nests)});
  }
  return choices;
}

}  // namespace

std::vector<Choice> candidates(const ConvProblem& problem, const ConvOptions& options, std::size_t most) {
  const ConvPlan pick = ConvPlan::make(problem, options);
  std::vector<Choice> choices{parse_choice(pick.choice())};
  if (!options.choice.empty()) return choices;
  for (const Implementation& implementation : implementations()) {
    const Engine engine = implementation.engine;
    const bool other_engine = engine != pick.engine() && engine != Engine::onednn;
    if (options.engine != Engine::automatic || !other_engine) continue;
    ConvOptions other = options;
    other.engine = engine;
    const auto estimate = assess(implementation, problem, other).estimate;
    if (estimate && estimate->seconds <= hopeless * pick.seconds()) choices.push_back(parse_choice(estimate->choice));
  }
  const auto add = [&](const std::vector<Choice>& others) {
    for (const Choice& choice : others) {
      if (std::find(choices.begin(), choices.end(), choice) == choices.end()) choices.push_back(choice);
    }
  };
  const bool tiles = std::any_of(choices.begin(), choices.end(), [](const Choice& one) { return bool(one.tiles); });
  const bool nests = std::any_of(choices.begin(), choices.end(), [](const Choice& one) { return bool(one.nests); });
  if (tiles) add(tiled_candidates(problem, options, most));
  if (nests) add(nest_choices(problem, most));
  return choices;
}

}  // namespace convolume::conv
