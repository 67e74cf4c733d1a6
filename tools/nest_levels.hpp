// The levels that data of a loop nest come from on this machine.
#pragma once

#include <array>
#include <string>

#include "convolume/blocking.hpp"

namespace convolume::tools {

inline constexpr std::array<const char*, plan::NestCost::levels> nest_level_names{"L2", "L3", "memory"};

/// Returns the bandwidth of each level that a core gets, by the machine row.
std::array<double, plan::NestCost::levels> nest_level_gb_per_s();

/// Returns what bounds a nest: "computation", or the level that cannot deliver as fast.
std::string bound_of(const plan::NestCost& cost);

}  // namespace convolume::tools
