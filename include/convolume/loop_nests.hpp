// The loop nests that the engine `direct` runs.
#pragma once

#include <array>

#include "convolume/conv_problem.hpp"
#include "convolume/nest.hpp"

namespace convolume {

/// Returns the nests that the engine `direct` would run, one per direction in the order of plan::directions. If groups
/// of channels are computed one after the other, they are those of one group. Deterministic and thread-safe. Throws
/// Unsupported if `direct` does not serve the problem, or runs no nests for it (depthwise).
CONVOLUME_API std::array<plan::LoopNest, plan::directions.size()> loop_nests(const ConvProblem& problem);

}  // namespace convolume
