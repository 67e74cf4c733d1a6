// Declares the ordered list of implementations from which a plan chooses.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

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

/// Assesses a problem, including its groups and the memory it needs. `parts` are those of a choice of this engine, or
/// null.
Assessment assess(const Implementation& implementation, const ConvProblem& problem, const ConvOptions& options,
                  const ChoiceParts* parts = nullptr);

/// Returns the choices that an implementation proposes to measure, the best first. Empty if it does not support the
/// problem, or if there is nothing to choose.
std::vector<Choice> propose(const Implementation& implementation, const ConvProblem& problem,
                            const ConvOptions& options, std::size_t most);

/// Parses the text that to_string() returns. Throws InvalidArgument that names the invalid word.
Choice parse_choice(const std::string& text);

/// Creates the engine for a problem for which assess() returned an estimate, with the parts of that estimate.
std::unique_ptr<ConvEngine> create_engine(const Implementation& implementation, const ConvProblem& problem,
                                          const ConvOptions& options, const ChoiceParts* parts);

}  // namespace convolume::conv
