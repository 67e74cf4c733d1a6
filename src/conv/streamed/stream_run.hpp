// One run of a streamed convolution: its programs, its buffers, and the threads that read and write.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <vector>

#include "conv/streamed/stream_plan.hpp"
#include "conv/streamed/stream_program.hpp"

namespace convolume::conv {

/// What a run needs to know of the plan.
struct StreamTask {
  const ConvPlan& whole;
  const ConvOptions& options;
  const StreamCut& cut;
  std::array<int, 3> buffers{2, 2, 2};  ///< of x, w and y; 1: in turn
};

/// The tensors of a run.
struct StreamTensors {
  TensorSource& x;
  TensorSource& w;
  const ConstTensorView& bias;
  TensorSink& y;
};

/// Runs all steps, and finishes y. Returns nothing if a stop request ended the run.
std::optional<StreamReport> run_stream(const StreamTask& task, const Execution& run, const StreamTensors& tensors,
                                       const std::function<void(index_t, index_t)>& progress, std::stop_token stop);

/// The memory of the engine for the tiles of a cut.
struct EngineMemory {
  std::size_t working = 0;   ///< buffers between tasks, and scratch of running tasks
  std::size_t prepared = 0;  ///< weights of one tile
};
/// Returns the memory for the largest tile of a cut, on so many threads.
EngineMemory engine_memory(const StreamTask& task, int threads);

}  // namespace convolume::conv
