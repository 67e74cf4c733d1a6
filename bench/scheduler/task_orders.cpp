#include "bench/scheduler/task_orders.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "scheduler/task_graph.hpp"

namespace convolume::bench {
namespace {

/// Ranks the tasks by their keys, the largest key first.
template <class Key>
std::vector<int> ranked(std::size_t count, const Key& key) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) > key(b); });
  std::vector<int> rank(count);
  for (std::size_t i = 0; i < count; ++i) rank[order[i]] = static_cast<int>(i);
  return rank;
}

/// Returns stage 0 for updates without predecessors and stage 1 for all other tasks.
std::vector<int> updates_first(const std::vector<TaskDescription>& tasks) {
  std::vector<int> stage;
  for (const TaskDescription& task : tasks) {
    stage.push_back(task.options.task_class == TaskClass::update && task.after.empty() ? 0 : 1);
  }
  return stage;
}

/// Returns how often the layer changes on the path to each task.
std::vector<int> layers_apart(const std::vector<TaskDescription>& tasks) {
  std::vector<int> stage(tasks.size(), 0);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    for (const TaskId id : tasks[i].after) {
      const auto before = static_cast<std::size_t>(id);
      stage[i] = std::max(stage[i], stage[before] + (tasks[before].layer == tasks[i].layer ? 0 : 1));
    }
  }
  return stage;
}

}  // namespace

std::vector<TaskOrder> task_orders(const TaskGraph& graph) {
  const std::vector<TaskDescription> tasks = graph.describe();
  const auto urgency = graph.impl().urgencies();
  const auto forced = ranked(tasks.size(), [&](std::size_t i) { return urgency[i]; });
  const auto last = ranked(tasks.size(), [&](std::size_t i) {
    return std::tuple(tasks[i].options.task_class != TaskClass::update, -forced[i]);
  });
  const auto holding = ranked(tasks.size(), [&](std::size_t i) {
    return std::tuple(tasks[i].options.task_class != TaskClass::release, -forced[i]);
  });
  const std::vector<int> at_once(tasks.size(), 0);
  return {{"FIFO", Arrival::first, {}, at_once},
          {"LIFO", Arrival::last, {}, at_once},
          {"priority, updates first", Arrival::none, forced, updates_first(tasks)},
          {"priority, updates last", Arrival::none, last, at_once},
          {"priority, updates forced", Arrival::none, forced, at_once},
          {"... memory given back last", Arrival::none, holding, at_once},
          {"barrier after each layer", Arrival::none, forced, layers_apart(tasks)}};
}

OrderedRun::OrderedRun(const std::vector<TaskDescription>& tasks, const TaskOrder& order)
    : tasks_(tasks), order_(order), successors_(tasks.size()) {
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    for (const TaskId before : tasks[i].after) {
      successors_[static_cast<std::size_t>(before)].push_back(static_cast<TaskId>(i));
    }
  }
}

void OrderedRun::begin() {
  const auto stages = static_cast<std::size_t>(*std::max_element(order_.stage.begin(), order_.stage.end())) + 1;
  left_of_stage_.assign(stages, 0);
  behind_barrier_.assign(stages, {});
  waits_for_.clear();
  left_ = tasks_.size();
  stage_ = 0;
  arrivals_ = 0;
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    ++left_of_stage_[static_cast<std::size_t>(order_.stage[i])];
    waits_for_.push_back(tasks_[i].after.size());
  }
  open_stages();
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    if (tasks_[i].after.empty()) make_ready(static_cast<TaskId>(i));
  }
}

std::optional<TaskId> OrderedRun::take() {
  if (ready_.empty()) return std::nullopt;
  const TaskId task = ready_.top().second;
  ready_.pop();
  return task;
}

void OrderedRun::ended(TaskId task) {
  --left_;
  --left_of_stage_[static_cast<std::size_t>(order_.stage[static_cast<std::size_t>(task)])];
  for (const TaskId after : successors_[static_cast<std::size_t>(task)]) {
    if (--waits_for_[static_cast<std::size_t>(after)] == 0) make_ready(after);
  }
  open_stages();
}

void OrderedRun::make_ready(TaskId task) {
  const auto stage = static_cast<std::size_t>(order_.stage[static_cast<std::size_t>(task)]);
  stage <= stage_ ? queue(task) : behind_barrier_[stage].push_back(task);
}

void OrderedRun::queue(TaskId task) {
  ++arrivals_;
  const std::int64_t key = order_.arrival == Arrival::first  ? arrivals_
                           : order_.arrival == Arrival::last ? -arrivals_
                                                             : order_.rank[static_cast<std::size_t>(task)];
  ready_.emplace(key, task);
}

/// Opens the stages after those whose tasks have all ended.
void OrderedRun::open_stages() {
  while (left_of_stage_[stage_] == 0 && stage_ + 1 < left_of_stage_.size()) {
    ++stage_;
    for (const TaskId task : behind_barrier_[stage_]) queue(task);
  }
}

double simulate(const std::vector<TaskDescription>& tasks, const TaskOrder& order, const std::vector<double>& seconds,
                int cores) {
  OrderedRun run(tasks, order);
  run.begin();
  using Ending = std::pair<double, TaskId>;
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> running;
  double now = 0;
  while (!run.over()) {
    while (running.size() < static_cast<std::size_t>(cores)) {
      const auto task = run.take();
      if (!task) break;
      running.emplace(now + seconds[static_cast<std::size_t>(*task)], *task);
    }
    const auto [end, ended] = running.top();
    running.pop();
    now = end;
    run.ended(ended);
  }
  return now;
}

}  // namespace convolume::bench
