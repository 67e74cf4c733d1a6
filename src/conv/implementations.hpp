// Declares the ordered list of implementations from which a plan chooses.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "conv/engine.hpp"

namespace convolume::conv {

/// Returns all implementations. If two estimates are equal, the plan takes the implementation that is first in the
/// list. `automatic` may choose every implementation up to the reference. oneDNN comes after the reference and is used
/// only if it is requested by name.
std::span<const Implementation> implementations();

/// The estimate of an implementation, or the reason why it does not support the problem.
struct Assessment {
  std::optional<Estimate> estimate{};
  std::string reason{};
};

/// Assesses a problem, including its groups and the memory it needs. The estimate's `choice` is never empty: it is at
/// least the name of the engine.
Assessment assess(const Implementation& implementation, const ConvProblem& problem, const ConvOptions& options);

/// Creates the engine for a problem for which assess() returned an estimate, with the choice of that estimate.
std::unique_ptr<ConvEngine> create_engine(const Implementation& implementation, const ConvProblem& problem,
                                          const ConvOptions& options, const std::string& choice);

}  // namespace convolume::conv
