#include "tools/plan_bandwidth_here.hpp"

#include "convolume/loop_nests.hpp"
#include "convolume/machine.hpp"

namespace convolume::tools {
namespace {

/// Returns the convolution of one group of channels.
ConvProblem group_of(ConvProblem problem) {
  problem.in_channels /= problem.groups;
  problem.out_channels /= problem.groups;
  problem.groups = 1;
  return problem;
}

}  // namespace

double host_gflops(DataType type) { return machine_model().gflops_per_core * 4 / static_cast<double>(size_of(type)); }

std::vector<HostDirection> host_directions(const ConvProblem& problem) {
  const auto nests = loop_nests(problem);
  const ConvProblem group = group_of(problem);
  const double gflop = 1e-9 * problem.flops(), peak = host_gflops(problem.type);
  std::vector<HostDirection> all;
  for (const plan::Direction direction : plan::directions) {
    HostDirection one{.direction = direction, .nest = nests[static_cast<std::size_t>(direction)]};
    one.cost.add(plan::nest_cost(one.nest, group, direction, machine_model()), static_cast<double>(problem.groups));
    one.gflops = gflop / one.cost.seconds();
    one.efficiency = one.gflops / peak;
    one.ee = gflop / peak / (one.cost.compute_seconds + one.cost.tile_seconds);
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace convolume::tools
