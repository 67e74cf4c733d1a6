// The tasks that are ready, by rank, and the decision which of them may start.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "scheduler/ready_set.hpp"

namespace convolume::scheduler {

/// Admits tasks by their memory. If there is a scratch budget, tasks that hold scratch wait in a separate queue. Its
/// first task may start if its scratch fits into the budget beside the scratch of the running tasks, or if these hold
/// none. So a task in this queue waits only for running tasks, and only tasks without scratch overtake the first one.
/// Therefore no run stops, and no large task starves.
///
/// Invariant: `held_` is the scratch of all tasks that were erased and have not ended.
///
/// Only the constructor allocates. Not thread-safe, except holds().
class ReadyTasks {
 public:
  static constexpr std::int32_t none = ReadySet::none;

  /// For `tasks` tasks. `scratch` holds the bytes of each task, by rank. It is empty if there is no budget.
  ReadyTasks(std::size_t tasks, std::vector<std::size_t> scratch, std::size_t budget)
      : scratch_(std::move(scratch)), budget_(budget), free_(tasks), holding_(scratch_.size()) {}

  /// Returns whether ended() must be called when this task ends.
  bool holds(std::int32_t rank) const noexcept {
    return !scratch_.empty() && scratch_[static_cast<std::size_t>(rank)] > 0;
  }
  /// Returns how many tasks may start. The first few of them may start together.
  std::size_t size() const noexcept { return free_.size() + (admits() ? holding_.size() : 0); }
  /// Returns the first task that may start, or `none`.
  std::int32_t first() const noexcept { return std::min(free_.first(), admits() ? holding_.first() : none); }

  /// Returns the first task without scratch whose rank is not below `from`, or `none`.
  std::int32_t first_free_from(std::int32_t from) const noexcept { return free_.first_from(from); }

  void insert(std::int32_t rank) noexcept { (holds(rank) ? holding_ : free_).insert(rank); }
  /// Removes a task that first() has returned, because it starts.
  void erase(std::int32_t rank) noexcept {
    if (!holds(rank)) return free_.erase(rank);
    holding_.erase(rank);
    held_ += scratch_[static_cast<std::size_t>(rank)];
  }
  /// Gives back the scratch of a task that has ended, for which holds() is true.
  void ended(std::int32_t rank) noexcept { held_ -= scratch_[static_cast<std::size_t>(rank)]; }

 private:
  /// Returns whether the first task that holds scratch may start.
  bool admits() const noexcept {
    const std::int32_t head = holding_.first();
    if (head == none) return false;
    // Written without overflow: a single task may raise held_ above the budget.
    return held_ == 0 || (held_ <= budget_ && scratch_[static_cast<std::size_t>(head)] <= budget_ - held_);
  }

  std::vector<std::size_t> scratch_;
  std::size_t budget_, held_ = 0;
  ReadySet free_, holding_;
};

}  // namespace convolume::scheduler
