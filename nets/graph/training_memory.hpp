// Predicts the memory of a training iteration before it runs.
#pragma once

#include <cstddef>

#include "nets/base/counted_memory.hpp"
#include "nets/graph/network.hpp"

namespace convolume::nets {

/// Peak number of bytes that a Trainer requests from its memory resource in its second and all later iterations, if
/// tensors and spectra lie in an arena. The volumes from which patches are drawn, and the heap memory of the task graph
/// itself, are not included.
struct TrainingMemory {
  std::size_t parameters = 0;  ///< values, gradients and the optimiser's state
  /// Other bytes that are held between iterations: two inputs and labels, a box of voxels per sample, logits and their
  /// gradient, sums of norms and of the loss. Data with masks, rotations or deformations need more; see PatchLoader.
  std::size_t lasting = 0;
  std::size_t arena = 0;
  // Sums of the buffers that share the arena, as if they were separate.
  std::size_t tensors = 0;  ///< activations and gradients
  std::size_t spectra = 0;  ///< spectra of x
  std::size_t weights = 0;  ///< prepared weights: spectra, or packed weights
  std::size_t working = 0;  ///< working buffers of engines between their tasks
  std::size_t scratch = 0;  ///< of the tasks with the largest scratch, one per thread
  double moved_bytes = 0;   ///< bytes that the tasks of layers other than convolutions move
  /// Cost of the critical path by TaskOptions::cost: with the dependencies that the arena adds, and without them.
  double critical_cost = 0, critical_cost_apart = 0;

  std::size_t peak() const noexcept { return parameters + lasting + arena + scratch; }
};

/// Returns how many patches the validation of training computes together: those of an iteration if the net can only be
/// a classifier, and one otherwise.
index_t validation_batch(const NetSpec& spec);

/// Predicts the memory that the validation of training takes: a net with prepared weights, for patches of the training
/// patch's extent, and the scratch of tasks on so many threads.
std::size_t validation_network_bytes(const NetSpec& spec, const NetworkOptions& options, int threads);

/// Predicts the memory of a network for training. `memory` must serve the network and `parameters` and nothing else. It
/// appends an iteration to graphs that never run; the arena is planned, but not allocated.
TrainingMemory plan_training_memory(Network& network, const Parameters& parameters, CountedMemory& memory, int threads);

}  // namespace convolume::nets
