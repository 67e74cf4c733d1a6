// Shapes of task graphs, without what the tasks do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convolume/scheduler.hpp"

namespace convolume::bench {

struct TaskShape {
  std::string name;
  std::vector<TaskDescription> tasks;  ///< by id; each after smaller ones only

  std::size_t edges() const;
};

/// One task after the other.
TaskShape chain(int tasks);
/// A first task, `width` tasks after it, and a last one.
TaskShape fan(int width);
/// `layers` fans, one after the other: between two of them all workers meet.
TaskShape fans(int layers, int width);
/// Layers of `width` tasks, each after up to `edges` tasks of the layer before, which chance chooses.
TaskShape layered(int layers, int width, int edges, std::uint64_t seed);
/// A training iteration of a net.
TaskShape training_iteration(const std::string& net_file, const std::vector<std::string>& overrides);

}  // namespace convolume::bench
