// What an empty task costs, side by side with oneTBB.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bench/scheduler/task_shapes.hpp"

namespace convolume::bench {

struct SchedulerContestOptions {
  std::vector<int> threads;
  std::vector<std::string> nets;  ///< files; a graph of each one's iteration
  std::vector<std::string> overrides;
  int rounds = 21;
  double min_seconds = 0.5;  ///< of all rounds of a graph together
  std::filesystem::path json;
};

/// Those that every mode knows, and those of the nets.
std::vector<TaskShape> shapes(const SchedulerContestOptions& options);

/// Returns the exit status.
int scheduler_side_by_side(const SchedulerContestOptions& options);

}  // namespace convolume::bench
