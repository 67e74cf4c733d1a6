// Chooses the implementation of a plan and reports why.
#pragma once

#include "conv/implementations.hpp"

namespace convolume::conv {

/// The implementation that computes a problem, and how it was chosen.
struct Decision {
  const Implementation* implementation = nullptr;  ///< null if no engine serves the problem
  SharedParts parts{};                             ///< of the choice
  Explanation explanation;                         ///< without caches, which the engine knows when it is made
};

/// Asks every implementation for its estimate, and takes the fastest one, or direct if it is nearly as fast. Builds no
/// engine. Throws InvalidArgument if the engine and the choice of the options contradict each other.
Decision decide(const ConvProblem& problem, const ConvOptions& options);

}  // namespace convolume::conv
