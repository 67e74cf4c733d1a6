// Determines how many threads and how much memory suit this process: what its affinity masks and its control groups
// allow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/topology.hpp"

namespace convolume {

/// Returns the numbers of the processors that threads of this process may use: those of all affinity masks of its
/// threads, and those of the places of each GNU OpenMP library that is loaded. With OMP_PROC_BIND=true such a library
/// leaves one processor to the thread that loaded it, and keeps the mask from before in its places. Empty if the system
/// does not say. From the first call with `keep` on, the result stays as it is. Thread-safe.
std::vector<int> process_processors(bool keep = false);

/// Returns the number of physical cores of `machine` that have one of the logical processors with these numbers. If any
/// of them is not an efficiency core, efficiency cores do not count. The number is limited by the quota of the control
/// groups (version 2 or 1) of this process; at least 1. `root` is the folder that contains /sys and /proc. If a file
/// cannot be read, it sets no limit. A processor that `machine` does not have counts as a core.
int usable_cores(const std::vector<int>& processors, const Topology& machine, const std::filesystem::path& root);

/// Returns the bytes of memory that this process may use: those of the machine, or less if its control groups (version
/// 2 or 1) limit it. Returns 0 if nothing is known. `root` is as above.
std::uint64_t usable_memory(const std::filesystem::path& root);

}  // namespace convolume
