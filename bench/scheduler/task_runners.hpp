// Who runs a graph of tasks: ours, and what oneTBB has for it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/scheduler/task_shapes.hpp"

namespace convolume::bench {

/// What every task does; told its number.
using TaskBody = void (*)(TaskId task);

/// Built once, run many times.
class TaskRunner {
 public:
  virtual ~TaskRunner() = default;
  /// Every task once, after those before it.
  virtual void run() = 0;
};

struct RunnerKind {
  std::string name;
  std::function<std::unique_ptr<TaskRunner>(const TaskShape&, TaskBody, int threads)> make;
};
/// "convolume" first; "flow_graph" is tbb::flow::graph of continue_nodes, "task_group" a tbb::task_group in which a
/// task runs the first successor that it makes ready itself, and gives the others to the group.
const std::vector<RunnerKind>& runner_kinds();

}  // namespace convolume::bench
