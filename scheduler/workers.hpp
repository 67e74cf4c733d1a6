// The implementation of a Scheduler: an arena, and which of its places have been used.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "convolume/scheduler.hpp"
#include "scheduler/helper_arena.hpp"

namespace convolume {

struct Scheduler::Impl {
  Impl(int thread_count, const SchedulerOptions& scheduler_options);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  static constexpr int most_threads = 1024;

  bool changes_masks() const noexcept { return arena != nullptr && options.change_affinity; }
  /// Records that a place has run tasks. It is called once per stretch of work, not per task. Place 0 belongs to the
  /// callers, the others to the arena. Only `threads` places exist, whichever thread TBB sends to a place.
  void note_worker(int place) noexcept;
  const int threads;
  const SchedulerOptions options;
  const int patience;                       // turns that an idle worker waits before it leaves
  const int linger;                         // turns that a helper waits for the next run
  scheduler::HelperArena* arena = nullptr;  // for helpers; null if there are none. Callers work outside it.
  Trace* trace = nullptr;                   // changes only between runs
  // One bit per place that has worked. relaxed: nothing is read through it.
  std::array<std::atomic<std::uint64_t>, most_threads / 64> worked{};
};

}  // namespace convolume
