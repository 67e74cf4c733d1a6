// Lists the choices that ConvPlan::tune() measures.
#pragma once

#include <vector>

#include "conv/choice.hpp"

namespace convolume::conv {

/// Returns choices that are worth measuring. The choice of the cost model is first. If one of the choices is fft_tiled,
/// at most `most` choices with separate tiles are added: the best tiles of every direction, then the second best of
/// every direction, and so on. Half as many choices with shared tiles (rounded up) follow. If one of the choices is
/// direct with loop nests, at most `most` choices of nests are added in the same way.
std::vector<Choice> candidates(const ConvProblem& problem, const ConvOptions& options, std::size_t most);

}  // namespace convolume::conv
