// Orders in which ready tasks can run: the order of TaskGraph, and others to compare it with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "convolume/scheduler.hpp"

namespace convolume::bench {

enum class Arrival {
  none,   ///< the ranks decide
  first,  ///< the task that became ready first
  last,   ///< the task that became ready last
};

struct TaskOrder {
  std::string name;
  Arrival arrival = Arrival::none;
  std::vector<int> rank{};   ///< by task; the smallest rank runs first
  std::vector<int> stage{};  ///< by task; no task starts before all tasks of smaller stages have ended
};

/// Returns the orders: FIFO, LIFO, priority with all updates first, priority with updates last, priority with forced
/// updates (TaskGraph's order), the same with release tasks last, and a barrier after each layer.
std::vector<TaskOrder> task_orders(const TaskGraph& graph);

/// One run of a graph's tasks in a given order. The caller takes the tasks. Not thread-safe.
class OrderedRun {
 public:
  /// Both arguments must outlive the run.
  OrderedRun(const std::vector<TaskDescription>& tasks, const TaskOrder& order);

  /// Starts the run anew. Tasks without predecessors become ready.
  void begin();
  /// Returns the next task, or nothing if no task is ready.
  std::optional<TaskId> take();
  void ended(TaskId task);
  bool over() const { return left_ == 0; }

 private:
  void make_ready(TaskId task);
  void queue(TaskId task);
  void open_stages();

  const std::vector<TaskDescription>& tasks_;
  const TaskOrder& order_;
  std::vector<std::vector<TaskId>> successors_;
  std::vector<std::size_t> waits_for_;
  std::vector<std::size_t> left_of_stage_;
  std::vector<std::vector<TaskId>> behind_barrier_;  // ready tasks, by stage
  std::size_t stage_ = 0, left_ = 0;
  std::int64_t arrivals_ = 0;
  using Entry = std::pair<std::int64_t, TaskId>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready_;
};

/// Returns the seconds of a run on `cores` cores by list scheduling, if each task takes `seconds`.
double simulate(const std::vector<TaskDescription>& tasks, const TaskOrder& order, const std::vector<double>& seconds,
                int cores);

}  // namespace convolume::bench
