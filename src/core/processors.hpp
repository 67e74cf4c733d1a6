// How many threads suit this process: physical cores, as affinity and control groups leave them.
#pragma once

#include <filesystem>
#include <vector>

namespace convolume {

/// Of the processors with these numbers, one for each physical core, but no more than the quota of the control groups
/// (version 2 or 1) that this process is in; at least 1. `root` is where /sys and /proc are. What cannot be read there
/// limits nothing.
int usable_cores(const std::vector<int>& processors, const std::filesystem::path& root);

}  // namespace convolume
