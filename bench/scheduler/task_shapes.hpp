// Shapes of task graphs, without the work of the tasks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convolume/scheduler.hpp"

namespace convolume::bench {

struct TaskShape {
  std::string name;
  std::vector<TaskDescription> tasks;  ///< by id; predecessors have smaller ids

  std::size_t edges() const;
  /// Returns the level of each task: the most tasks that come before it one after the other.
  std::vector<int> levels() const;
};

/// Returns tasks that run one after the other.
TaskShape chain(int tasks);
/// Returns a first task, `width` tasks after it, and a last task after these.
TaskShape fan(int width);
/// Returns `layers` fans, one after the other. Between two fans all workers must meet.
TaskShape fans(int layers, int width);
/// Returns layers of `width` tasks. Each task follows up to `edges` random tasks of the layer before.
TaskShape layered(int layers, int width, int edges, std::uint64_t seed);
/// Returns the graph of a net's training iteration.
TaskShape training_iteration(const std::string& net_file, const std::vector<std::string>& overrides);

}  // namespace convolume::bench
