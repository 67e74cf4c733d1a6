#include "conv/candidates.hpp"

#include <algorithm>

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

}  // namespace

std::vector<Choice> candidates(const ConvProblem& problem, const ConvOptions& options, std::size_t tiled) {
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
  const auto has_tiles = [](const Choice& choice) { return choice.tiles.has_value(); };
  if (std::none_of(choices.begin(), choices.end(), has_tiles)) return choices;
  for (const Choice& choice : tiled_candidates(problem, options, tiled)) {
    if (std::find(choices.begin(), choices.end(), choice) == choices.end()) choices.push_back(choice);
  }
  return choices;
}

}  // namespace convolume::conv
