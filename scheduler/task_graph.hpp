// The inside of a TaskGraph: what was added, and the compact form that runs walk over.
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

/// A task as a run sees it. Tasks go by their rank then: the smaller one runs first where both are ready.
struct Step {
  TaskId task;
  std::int32_t first_successor;  // in TaskGraph::Impl::successors; the next step's ends them
  std::int32_t predecessors;
  TaskClass task_class;
};

}  // namespace scheduler

struct TaskGraph::Impl {
  struct Node {
    TaskOptions options;
    std::string layer;
    std::vector<TaskId> predecessors;  // ascending, each once
  };

  /// Derives steps and successors from the nodes, where something was added since the last time.
  void prepare();
  /// What traces call the tasks; made for the first run that is recorded.
  const scheduler::SharedLabels& trace_labels();
  /// By task.
  std::vector<scheduler::Urgency> urgencies() const;

  std::vector<Node> nodes;
  std::vector<std::function<void()>> bodies;  // by task
  std::string layer;                          // of tasks to come
  scheduler::SharedLabels labels;             // none, or of all nodes
  bool prepared = false;
  std::vector<scheduler::Step> steps;    // by rank, and one that ends the last one's successors
  std::vector<std::int32_t> successors;  // ranks, ascending for each step
  std::shared_ptr<scheduler::Run> run;   // of the last scheduler, kept so that runs allocate nothing
  std::atomic<bool> running{false};
};

}  // namespace convolume
