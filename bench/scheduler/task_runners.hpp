// Programs that run a graph of tasks: this library, two ways of oneTBB, and threads that are made and joined.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/scheduler/task_shapes.hpp"

namespace convolume::bench {

/// The work of every task. It gets the task's number.
using TaskBody = void (*)(TaskId task);

/// A graph that is built once and run many times.
class TaskRunner {
 public:
  virtual ~TaskRunner() = default;
  /// Runs every task once, after its predecessors.
  virtual void run() = 0;
};

struct RunnerKind {
  std::string name;
  std::function<std::unique_ptr<TaskRunner>(const TaskShape&, TaskBody, int threads)> make;
};
/// Returns "convolume", "flow_graph", "task_group" and "join_levels", in this order. "flow_graph" is a tbb::flow::graph
/// of continue_nodes. "task_group" is a tbb::task_group: a task runs the first successor that it makes ready itself,
/// and gives the others to the group. "join_levels" makes threads for each level of the graph and joins them (swDNN,
/// Figure 10: what a persistent scheduler replaces).
const std::vector<RunnerKind>& runner_kinds();

}  // namespace convolume::bench
