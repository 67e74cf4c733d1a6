#include "bench/scheduler/task_shapes.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "bench/net/measured_net.hpp"
#include "core/random.hpp"

namespace convolume::bench {
namespace {

TaskId add(TaskShape& shape, std::vector<TaskId> after) {
  shape.tasks.push_back({.options = {}, .layer = {}, .after = std::move(after)});
  return static_cast<TaskId>(shape.tasks.size() - 1);
}

/// Appends a fan after `first`. Returns its last task.
TaskId add_fan(TaskShape& shape, TaskId first, int width) {
  std::vector<TaskId> middle;
  for (int i = 0; i < width; ++i) middle.push_back(add(shape, {first}));
  return add(shape, std::move(middle));
}

}  // namespace

std::size_t TaskShape::edges() const {
  std::size_t sum = 0;
  for (const TaskDescription& task : tasks) sum += task.after.size();
  return sum;
}

std::vector<int> TaskShape::levels() const {
  std::vector<int> levels(tasks.size(), 0);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    for (const TaskId before : tasks[i].after) {
      levels[i] = std::max(levels[i], levels[static_cast<std::size_t>(before)] + 1);
    }
  }
  return levels;
}

TaskShape chain(int tasks) {
  TaskShape shape{.name = fmt::format("chain of {}", tasks), .tasks = {}};
  add(shape, {});
  for (TaskId i = 1; i < tasks; ++i) add(shape, {i - 1});
  return shape;
}

TaskShape fan(int width) {
  TaskShape shape{.name = fmt::format("fan of {}", width), .tasks = {}};
  add_fan(shape, add(shape, {}), width);
  return shape;
}

TaskShape fans(int layers, int width) {
  TaskShape shape{.name = fmt::format("{} fans of {}", layers, width), .tasks = {}};
  TaskId last = add(shape, {});
  for (int i = 0; i < layers; ++i) last = add_fan(shape, last, width);
  return shape;
}

TaskShape layered(int layers, int width, int edges, std::uint64_t seed) {
  TaskShape shape{.name = fmt::format("{} random layers of {}, {} edges", layers, width, edges), .tasks = {}};
  const RandomKey key{.seed = seed};
  std::uint64_t draw = 0;
  for (int layer = 0; layer < layers; ++layer) {
    for (int i = 0; i < width; ++i) {
      std::vector<TaskId> after;
      for (int e = 0; e < edges && layer > 0; ++e) {
        const auto chosen = uniform_below(key, draw++, static_cast<std::uint64_t>(width));
        after.push_back((layer - 1) * width + static_cast<TaskId>(chosen));
      }
      std::sort(after.begin(), after.end());
      after.erase(std::unique(after.begin(), after.end()), after.end());
      add(shape, std::move(after));
    }
  }
  return shape;
}

TaskShape training_iteration(const std::string& net_file, const std::vector<std::string>& overrides) {
  const nets::NetSpec spec = nets::load_net(net_file, overrides);
  const auto net = MeasuredNet::make(Work::training, spec, {.memory_budget = std::size_t{4} << 30}, 1);
  return {.name = "iteration of " + spec.name, .tasks = net->graph().describe()};
}

}  // namespace convolume::bench
