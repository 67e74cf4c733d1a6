// Choice texts of the direct engine with nests that a test gives.
#pragma once

#include <string>

#include "conv/choice.hpp"
#include "convolume/conv.hpp"

namespace convolume::test {

/// Returns the nests that `direct` chooses for a problem.
inline conv::Nests direct_nests(const ConvProblem& problem) {
  return *conv::parse_choice(ConvPlan::make(problem, {.engine = Engine::direct}).choice()).nests;
}

/// Returns the choice text of `direct` with these nests.
inline std::string choice_text(const conv::Nests& nests) {
  return to_string(conv::Choice{.engine = Engine::direct, .nests = nests});
}

}  // namespace convolume::test
