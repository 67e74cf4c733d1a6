// What a training iteration will hold of memory, before it runs.
#pragma once

#include <cstddef>

#include "nets/counted_memory.hpp"
#include "nets/network.hpp"

namespace convolume::nets {

/// Bytes asked of the memory resource that a Trainer was given, at their highest in its second and all later
/// iterations, with tensors and spectra in an arena. Volumes to draw patches from are not among them, nor what the task
/// graph itself takes from the heap.
struct TrainingMemory {
  std::size_t parameters = 0;  ///< values, gradients and the optimiser's state
  /// What is there between iterations besides: input, labels, logits and their gradient, sums of norms and of the loss.
  /// Data with masks need one more map of labels.
  std::size_t lasting = 0;
  std::size_t arena = 0;
  // What has its place in the arena, apart.
  std::size_t tensors = 0;  ///< activations and gradients
  std::size_t spectra = 0;  ///< of x
  std::size_t weights = 0;  ///< prepared: spectra, or packed
  std::size_t working = 0;  ///< of engines, between their tasks
  std::size_t scratch = 0;  ///< of the tasks that hold most, one for each thread
  /// The costliest path through the tasks, by TaskOptions::cost, as it is and without the order that the arena adds.
  double critical_cost = 0, critical_cost_apart = 0;

  std::size_t peak() const noexcept { return parameters + lasting + arena + scratch; }
};

/// Of a network for training whose tensors, and `parameters`, come from `memory` and nothing else does. Appends an
/// iteration to graphs that never run; the arena is planned, not taken.
TrainingMemory plan_training_memory(Network& network, const Parameters& parameters, CountedMemory& memory, int threads);

}  // namespace convolume::nets
