// Determines how many threads suit this process: the physical cores that its affinity mask and control groups allow.
#pragma once

#include <filesystem>
#include <vector>

namespace convolume {

/// Returns the number of physical cores among the CPUs with these numbers, limited by the quota of the control groups
/// (version 2 or 1) of this process; at least 1. `root` is the folder that contains /sys and /proc. If a file cannot be
/// read, it sets no limit.
int usable_cores(const std::vector<int>& processors, const std::filesystem::path& root);

}  // namespace convolume
