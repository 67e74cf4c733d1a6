// Counts the memory traffic of a net's convolutions by the loop nests of the engine `direct`.
#include "convolume/error.hpp"
#include "convolume/loop_nests.hpp"
#include "convolume/memory.hpp"
#include "convolume/net_costs.hpp"
#include "nets/graph/network.hpp"
#include "plan/groups.hpp"

namespace convolume::nets {

std::vector<LayerBlocking> count_blocking(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                                          std::optional<Extent3> patch) {
  const NetSpec spec = load_net(file, overrides);
  if (patch) refuse_patch_of_classifier(spec, "--patch");
  SlabResource memory;
  Parameters parameters(spec, true, 1, &memory);
  const Network network(spec, patch.value_or(spec.patch), parameters, {.batch = spec.training.batch, .training = true},
                        &memory);
  std::vector<LayerBlocking> layers;
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    const ConvPlan* plan = network.plan_of(i);
    if (plan == nullptr || plan::is_depthwise(plan->problem())) continue;
    const ConvProblem& problem = plan->problem();
    std::array<plan::LoopNest, plan::directions.size()> nests;
    try {
      nests = loop_nests(problem);
    } catch (const Unsupported& error) {
      layers.push_back({.layer = spec.nodes[i].name, .engine = plan->engine(), .unsupported = error.what()});
      continue;
    }
    const ConvProblem one = problem.groups > 1 ? plan::one_group(problem) : problem;
    for (const plan::Direction direction : plan::directions) {
      const plan::LoopNest& nest = nests[static_cast<std::size_t>(direction)];
      plan::NestCost cost;
      cost.add(plan::nest_cost(nest, one, direction, machine_model()), static_cast<double>(problem.groups));
      layers.push_back({spec.nodes[i].name, plan->engine(), {}, direction, nest, cost});
    }
  }
  return layers;
}

}  // namespace convolume::nets
