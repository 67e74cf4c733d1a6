#include "conv/candidates.hpp"

#include <algorithm>

#include "conv/implementations.hpp"
#include "plan/cost_constants.hpp"

namespace convolume::conv {

std::vector<Choice> candidates(const ConvProblem& problem, const ConvOptions& options, std::size_t most) {
  const ConvPlan pick = ConvPlan::make(problem, options);
  std::vector<Choice> choices{parse_choice(pick.choice())};
  if (!options.choice.empty()) return choices;
  for (const Implementation& implementation : implementations()) {
    const Engine engine = implementation.engine;
    const bool other_engine = engine != pick.engine() && engine != Engine::onednn;
    if (options.engine != Engine::automatic || !other_engine) continue;
    if (options.low_error && implementation.larger_error) continue;
    ConvOptions other = options;
    other.engine = engine;
    const auto estimate = assess(implementation, problem, other).estimate;
    if (estimate && estimate->seconds <= plan::hopeless_estimate * pick.seconds())
      choices.push_back({engine, estimate->parts});
  }
  for (const Implementation& implementation : implementations()) {
    const auto has_parts = [&](const Choice& one) { return one.engine == implementation.engine && one.parts; };
    if (std::none_of(choices.begin(), choices.end(), has_parts)) continue;
    for (const Choice& choice : propose(implementation, problem, options, most)) {
      if (std::find(choices.begin(), choices.end(), choice) == choices.end()) choices.push_back(choice);
    }
  }
  return choices;
}

}  // namespace convolume::conv
