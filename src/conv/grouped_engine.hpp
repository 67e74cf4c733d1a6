// Groups of channels as so many convolutions of an engine that knows none.
#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

/// As many groups as channels on both sides: engines serve these themselves.
bool is_depthwise(const ConvProblem& problem);
/// What one group computes.
ConvProblem one_group(ConvProblem problem);

/// What `offer` says to one group of the problem: an engine that executes it for all of them, or the refusal. In
/// blocked tensors a group has to have whole channel blocks.
Answer offer_grouped(const ConvProblem& problem, const ConvOptions& options,
                     Answer (*offer)(const ConvProblem&, const ConvOptions&));

}  // namespace convolume::conv
