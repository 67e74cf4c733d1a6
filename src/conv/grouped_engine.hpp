// Computes a problem with groups by an engine that supports only one group.
#pragma once

#include <memory>

#include "conv/engine.hpp"

namespace convolume::conv {

/// Returns an engine that executes `engine`, made for plan::one_group(problem), for each group of `problem` in turn. If
/// tensors are blocked, each group must consist of whole channel blocks.
std::unique_ptr<ConvEngine> make_grouped(const ConvProblem& problem, std::unique_ptr<ConvEngine> engine);

}  // namespace convolume::conv
