// Groups of channels.
#pragma once

#include "convolume/conv_problem.hpp"

namespace convolume::plan {

/// Returns whether the problem has as many groups as channels on both sides, and more than one.
bool is_depthwise(const ConvProblem& problem) noexcept;
/// Returns the problem that one group computes.
ConvProblem one_group(ConvProblem problem) noexcept;

}  // namespace convolume::plan
