// The choices that a measurement compares.
#pragma once

#include <vector>

#include "conv/choice.hpp"

namespace convolume::conv {

/// Choices that are worth measuring, the one of the cost model first. Of fft_tiled at most so many whose tiles are
/// apart, the best ones of all directions together, then the next best of all directions, and so on; and half as many
/// whose tiles are shared.
std::vector<Choice> candidates(const ConvProblem& problem, const ConvOptions& options, std::size_t tiled);

}  // namespace convolume::conv
