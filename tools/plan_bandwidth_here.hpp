// Required against available bandwidth of the nests that `direct` runs on this machine.
#pragma once

#include <string>
#include <vector>

#include "convolume/blocking.hpp"
#include "convolume/conv_problem.hpp"

namespace convolume::tools {

/// A direction of a convolution on one core, by the engine `direct`.
struct HostDirection {
  plan::Direction direction = plan::Direction::forward;
  plan::LoopNest nest{};  ///< of one group
  plan::NestCost cost{};  ///< of all groups
  double gflops = 0;
  double efficiency = 0;  ///< gflops over the peak of a core
  double ee = 0;          ///< multiply-adds at the peak over the time of the register tiles
};

/// Returns all three directions. Throws Unsupported if `direct` has no nests for the problem.
std::vector<HostDirection> host_directions(const ConvProblem& problem);

/// Returns the peak of a core for elements of `type`, in GFLOP/s.
double host_gflops(DataType type);

}  // namespace convolume::tools
