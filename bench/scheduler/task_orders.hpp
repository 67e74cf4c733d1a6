// Orders in which ready tasks may be taken: the one of TaskGraph, and what it is held against.
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
  none,   ///< ranks decide
  first,  ///< what became ready first
  last,   ///< what became ready last
};

struct TaskOrder {
  std::string name;
  Arrival arrival = Arrival::none;
  std::vector<int> rank{};   ///< by task: the smaller one is taken first
  std::vector<int> stage{};  ///< by task: none starts before all of smaller stages have ended
};

/// FIFO, LIFO, priority behind updates that all come first, priority with updates last, priority with forced updates
/// (TaskGraph's), the same but for tasks that give memory back, and a barrier after each layer.
std::vector<TaskOrder> task_orders(const TaskGraph& graph);

/// One run of a graph's tasks, taken in an order by whoever asks. Not thread-safe.
class OrderedRun {
 public:
  /// Both must outlive the run.
  OrderedRun(const std::vector<TaskDescription>& tasks, const TaskOrder& order);

  /// Every task is ready, or waits for one that has been taken, again.
  void begin();
  /// The next task, or nothing where none is ready.
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
  std::vector<std::vector<TaskId>> behind_barrier_;  // ready, by stage
  std::size_t stage_ = 0, left_ = 0;
  std::int64_t arrivals_ = 0;
  using Entry = std::pair<std::int64_t, TaskId>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready_;
};

/// Seconds that a run takes on so many cores, on which each task takes as long as `seconds` says: list scheduling.
double simulate(const std::vector<TaskDescription>& tasks, const TaskOrder& order, const std::vector<double>& seconds,
                int cores);

}  // namespace convolume::bench
