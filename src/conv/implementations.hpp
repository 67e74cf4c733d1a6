// The ordered list of implementations from which a plan chooses.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "conv/engine.hpp"

namespace convolume::conv {

/// All implementations. If two estimates are equal, the one that stands first is taken. The reference ends the list of
/// those that `automatic` may choose; oneDNN stands behind it and is used only if requested by name.
std::span<const Implementation> implementations();

/// The estimate of an implementation, or the reason why it does not support the problem.
struct Assessment {
  std::optional<Estimate> estimate{};
  std::string reason{};
};

/// Assesses a problem, groups and memory included. The estimate's `choice` is at least the name of the engine.
Assessment assess(const Implementation& implementation, const ConvProblem& problem, const ConvOptions& options);

/// Creates the engine for a problem that assess() has an estimate for, by the choice of that estimate.
std::unique_ptr<ConvEngine> create_engine(const Implementation& implementation, const ConvProblem& problem,
                                          const ConvOptions& options, const std::string& choice);

}  // namespace convolume::conv
