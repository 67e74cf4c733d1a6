// Chooses how much memory a training iteration takes, and predicts what that costs in time.
#pragma once

#include <cstddef>
#include <vector>

#include "nets/graph/network.hpp"
#include "nets/graph/training_memory.hpp"

namespace convolume::nets {

/// The options that trade time for memory, with their predicted effect. They do not change bits: spectra that are not
/// kept are computed again, and memory that is reused sooner only adds an order among tasks.
struct MemoryPlan {
  std::size_t memory_budget = 0;  ///< see NetworkOptions
  Slack slack{};                  ///< see NetworkOptions
  TrainingMemory memory{};
  std::size_t kept_spectra = 0;  ///< bytes
  /// Predicted seconds of an iteration, by the cost model. Only ratios of two plans of a net are meaningful.
  double seconds = 0;
  bool by_default = false;  ///< whether training takes this plan if there is no limit

  /// Returns the options with this plan in them.
  NetworkOptions apply(NetworkOptions options) const;
};

/// Returns the plans for training a net, the fastest first. Each takes less memory and no less predicted time than the
/// one before. Deterministic; tunes nothing. Takes one to two seconds for a large net, because every plan is drafted. A
/// budget in the options is kept. In a memory mode other than `arena` there is one plan, without a prediction.
std::vector<MemoryPlan> memory_plans(const NetSpec& spec, const NetworkOptions& options, int threads);

/// Returns the default: among the plans with the usual slack, the one with the least product of its predicted time and
/// the fourth root of its memory. So spectra are given up if 1 % more time saves more than 4 % of the memory. Does not
/// depend on threads.
const MemoryPlan& default_plan(const std::vector<MemoryPlan>& plans);

/// Returns the fastest plan that takes at most `bytes` at its peak, or null if there is none.
const MemoryPlan* fastest_within(const std::vector<MemoryPlan>& plans, std::size_t bytes);

/// Returns the bytes of a training process beside an iteration: the program, the net of the validation, and the least
/// memory for volumes.
std::size_t fixed_process_bytes(const NetSpec& spec, const NetworkOptions& options, int threads);

/// Returns the options of a net that is trained, with the default plan if they have no budget.
NetworkOptions with_memory_plan(const NetSpec& spec, const NetworkOptions& options);

}  // namespace convolume::nets
