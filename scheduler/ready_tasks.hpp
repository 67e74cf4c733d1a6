// The tasks that are ready, by rank, and which of them may start.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "scheduler/ready_set.hpp"

namespace convolume::scheduler {

/// Admission by memory: with a budget, tasks that hold scratch stand in a queue of their own, whose head may start when
/// what it holds fits beside what the running ones hold, or when these hold nothing. Whoever waits there, waits for a
/// task that runs, and nobody overtakes the head but tasks that hold nothing: no run stops, and no large task starves.
///
/// Invariant: `held_` is the scratch of the tasks that were erased and have not ended.
///
/// Allocates at construction only. Not thread-safe, but for holds().
class ReadyTasks {
 public:
  static constexpr std::int32_t none = ReadySet::none;

  /// Of `tasks` tasks; `scratch` are the bytes of each, by rank, and empty where there is no budget.
  ReadyTasks(std::size_t tasks, std::vector<std::size_t> scratch, std::size_t budget)
      : scratch_(std::move(scratch)), budget_(budget), free_(tasks), holding_(scratch_.size()) {}

  /// Whether the end of this task has to be told.
  bool holds(std::int32_t rank) const noexcept {
    return !scratch_.empty() && scratch_[static_cast<std::size_t>(rank)] > 0;
  }
  /// How many tasks may start, the first few of them at once.
  std::size_t size() const noexcept { return free_.size() + (admits() ? holding_.size() : 0); }
  /// The first one that may start, or none.
  std::int32_t first() const noexcept { return std::min(free_.first(), admits() ? holding_.first() : none); }

  void insert(std::int32_t rank) noexcept { (holds(rank) ? holding_ : free_).insert(rank); }
  /// A task that first() has returned starts.
  void erase(std::int32_t rank) noexcept {
    if (!holds(rank)) return free_.erase(rank);
    holding_.erase(rank);
    held_ += scratch_[static_cast<std::size_t>(rank)];
  }
  /// A task that holds scratch has ended.
  void ended(std::int32_t rank) noexcept { held_ -= scratch_[static_cast<std::size_t>(rank)]; }

 private:
  /// Whether the head of those that hold scratch may start.
  bool admits() const noexcept {
    const std::int32_t head = holding_.first();
    if (head == none) return false;
    // Without overflow: held_ may be above the budget by a single task.
    return held_ == 0 || (held_ <= budget_ && scratch_[static_cast<std::size_t>(head)] <= budget_ - held_);
  }

  std::vector<std::size_t> scratch_;
  std::size_t budget_, held_ = 0;
  ReadySet free_, holding_;
};

}  // namespace convolume::scheduler
