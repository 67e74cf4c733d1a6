// Determines how many threads suit this process: the physical cores that its affinity mask and control groups allow.
#pragma once

#include <filesystem>
#include <vector>

#include "core/topology.hpp"

namespace convolume {

/// Returns the number of physical cores of `machine` that have one of the logical processors with these numbers. If any
/// of them is not an efficiency core, efficiency cores do not count. The number is limited by the quota of the control
/// groups (version 2 or 1) of this process; at least 1. `root` is the folder that contains /sys and /proc. If a file
/// cannot be read, it sets no limit. A processor that `machine` does not have counts as a core.
int usable_cores(const std::vector<int>& processors, const Topology& machine, const std::filesystem::path& root);

}  // namespace convolume
