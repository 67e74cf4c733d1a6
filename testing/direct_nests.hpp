// Choice texts of the direct engine with nests that a test gives.
#pragma once

#include <string>

#include "conv/direct/nest_choice.hpp"
#include "convolume/loop_nests.hpp"

namespace convolume::test {

/// Returns the nests that `direct` chooses for a problem.
inline conv::Nests direct_nests(const ConvProblem& problem) { return loop_nests(problem); }

/// Returns the choice text of `direct` with these nests.
inline std::string choice_text(const conv::Nests& nests) {
  return to_string(conv::Choice{Engine::direct, std::make_shared<conv::NestParts>(nests)});
}

}  // namespace convolume::test
