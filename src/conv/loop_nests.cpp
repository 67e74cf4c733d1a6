#include "convolume/loop_nests.hpp"

#include "conv/direct/nest_choice.hpp"
#include "conv/implementations.hpp"
#include "convolume/error.hpp"

namespace convolume {

std::array<plan::LoopNest, plan::directions.size()> loop_nests(const ConvProblem& problem) {
  const auto choice = conv::parse_choice(ConvPlan::make(problem, {.engine = Engine::direct}).choice());
  const auto* parts = choice.as<conv::NestParts>();
  if (parts == nullptr) throw Unsupported("direct runs no nests for depthwise convolutions");
  return parts->nests();
}

}  // namespace convolume
