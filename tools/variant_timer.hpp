// The engine `direct`, as `plan variants` asks it: whether it runs a nest, and how long that takes.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "convolume/conv_problem.hpp"
#include "convolume/nest.hpp"

namespace convolume::tools {

/// One direction of one problem, on blocked tensors.
class DirectVariants {
 public:
  /// Throws Unsupported if `direct` does not serve the problem.
  DirectVariants(const ConvProblem& problem, plan::Direction direction);

  /// Returns why `direct` refuses a nest; an empty text if it runs it.
  std::string refusal(const plan::LoopNest& nest) const;
  /// Returns the choice text of a plan that runs a nest in this direction.
  std::string choice(const plan::LoopNest& nest) const;

  const ConvProblem& problem() const { return problem_; }
  plan::Direction direction() const { return direction_; }

 private:
  ConvProblem problem_;
  plan::Direction direction_;
  std::array<plan::LoopNest, plan::directions.size()> nests_;  ///< those that direct would choose
};

/// Measures choices of one problem. Tensors are filled once.
class VariantClock {
 public:
  /// Allocates the tensors.
  VariantClock(const DirectVariants& variants, int threads);
  ~VariantClock();
  VariantClock(const VariantClock&) = delete;
  VariantClock& operator=(const VariantClock&) = delete;

  /// Returns the seconds of one execution with prepared weights: the lower quartile of several. An empty text is the
  /// library's own choice.
  double seconds(const std::string& choice);
  /// Returns the name of the engine of the library's own choice.
  std::string automatic_engine() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convolume::tools
