#include "tools/nest_levels.hpp"

#include "convolume/machine.hpp"

namespace convolume::tools {

std::array<double, plan::NestCost::levels> nest_level_gb_per_s() {
  const MachineModel& m = machine_model();
  return {m.l2_gb_per_s, m.l3_gb_per_s, m.dram_gb_per_s};
}

std::string bound_of(const plan::NestCost& cost) {
  const std::size_t level = cost.slowest_level();
  return cost.needed_bandwidth(level) > 1e9 * nest_level_gb_per_s()[level] ? nest_level_names[level] : "computation";
}

}  // namespace convolume::tools
