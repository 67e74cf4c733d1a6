// Groups of channels as so many convolutions of an engine that knows none.
#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

/// What `offer` says to one group of the problem: an engine that executes it for all of them, or the refusal. In
/// blocked tensors a group has to have whole channel blocks.
Answer offer_grouped(const ConvProblem& problem, const ConvOptions& options,
                     Answer (*offer)(const ConvProblem&, const ConvOptions&));

}  // namespace convolume::conv
