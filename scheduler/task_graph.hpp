// The implementation of a TaskGraph: the tasks that were added, and the compact form that runs use.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "convolume/scheduler.hpp"
#include "scheduler/trace.hpp"
#include "scheduler/urgency.hpp"

namespace convolume {

namespace scheduler {
class Run;

inline constexpr TaskId no_task = -1;

/// A task as a run sees it. In a run, a task is identified by its rank, which is its position in the priority order. If
/// two tasks are ready, the one of smaller rank runs first.
struct Step {
  TaskId task;                   // no_task: a join, which has no work
  std::int32_t first_successor;  // in TaskGraph::Impl::successors; the list ends where that of the next step begins
  std::int32_t predecessors;
  std::int32_t first_equal, last_equal;  // ranks [first_equal, last_equal) of the tasks that are as urgent as this one
  TaskClass task_class;
};

}  // namespace scheduler

struct TaskGraph::Impl {
  struct Node {
    TaskOptions options;
    std::string layer;
    std::vector<TaskId> predecessors;  // ascending, each once
  };

  /// Computes steps and successors from the nodes, if a task was added since the last call.
  void prepare();
  /// Returns the labels of the tasks in traces. They are made for the first run that is recorded.
  const scheduler::SharedLabels& trace_labels();
  /// Returns the urgency of each task, by task id.
  std::vector<scheduler::Urgency> urgencies() const;
  /// Returns the number of steps: tasks and joins.
  std::size_t step_count() const noexcept { return steps.size() - 1; }

  std::vector<Node> nodes;
  std::vector<std::function<void()>> bodies;  // by task id
  std::string layer;                          // of tasks added from now on
  scheduler::SharedLabels labels;             // null, or of all nodes
  bool prepared = false;
  std::vector<scheduler::Step> steps =
      std::vector<scheduler::Step>(1);   // by rank, and one more that ends the successors of the last step
  std::vector<std::int32_t> successors;  // ranks, ascending for each step
  std::shared_ptr<scheduler::Run> run;   // for the last scheduler; kept so that later runs allocate nothing
  std::atomic<bool> running{false};
};

}  // namespace convolume
