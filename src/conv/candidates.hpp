// Lists the choices that ConvPlan::tune() measures.
#pragma once

#include <vector>

#include "conv/choice.hpp"

namespace convolume::conv {

/// Returns choices that are worth measuring, all different. The choice of the cost model is first, and those of other
/// engines that are not much slower follow. Then come about `most` choices that each of these engines proposes: the
/// best parts of every direction, then the second best of every direction, and so on.
std::vector<Choice> candidates(const ConvProblem& problem, const ConvOptions& options, std::size_t most);

}  // namespace convolume::conv
