// Measures the cost of empty tasks, side by side with oneTBB.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bench/scheduler/task_shapes.hpp"

namespace convolume::bench {

struct SchedulerContestOptions {
  std::vector<int> threads;
  std::vector<std::string> nets;  ///< files; the graph of each net's iteration is measured too
  std::vector<std::string> overrides;
  int rounds = 21;
  double min_seconds = 0.5;  ///< for all rounds of a graph together
  std::filesystem::path json;
};

/// Returns the built-in graphs, and the graphs of the nets.
std::vector<TaskShape> shapes(const SchedulerContestOptions& options);

/// Returns the exit status.
int scheduler_side_by_side(const SchedulerContestOptions& options);

}  // namespace convolume::bench
