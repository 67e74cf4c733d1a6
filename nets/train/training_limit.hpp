// How a limit of memory is divided between the iterations of a training, its validation and its volumes.
#pragma once

#include <cstddef>

#include "nets/graph/memory_plan.hpp"

namespace convolume::nets {

/// What a training may take.
struct TrainingLimit {
  std::size_t memory = 0;  ///< bytes of the process; 0: three quarters of what the system allows
  bool tune = false;       ///< whether choices will be measured; for messages
  int threads = 1;
};

/// The memory plan of a training, and the bytes that training and validation leave for volumes.
struct TrainingRoom {
  MemoryPlan plan;
  std::size_t volume_bytes = 0;
};

/// Chooses the fastest plan that fits. If the choices in `options` cannot be planned here and `recorded` is set, it
/// plans without them: whoever continues a run compares them afterwards. Throws InvalidArgument that names the least
/// memory.
TrainingRoom plan_training_room(const NetSpec& spec, NetworkOptions options, const TrainingLimit& limit, bool recorded);

/// Throws InvalidArgument if measured choices take more than the plan, which was made before them, has room for.
void require_room(const TrainingRoom& room, const NetSpec& spec, const TrainingLimit& limit, std::size_t arena_bytes);

}  // namespace convolume::nets
