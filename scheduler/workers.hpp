// The inside of a Scheduler: a TBB arena, and which of its places have been worked at.
#pragma once

#include <bitset>
#include <cstddef>
#include <mutex>

#include <tbb/task_arena.h>

#include "convolume/scheduler.hpp"

namespace convolume {

struct Scheduler::Impl {
  Impl(int thread_count, const SchedulerOptions& scheduler_options);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  static constexpr int most_threads = 1024;

  /// Remembers who works; called once per stretch of work, not per task. Place 0 is the callers', the others are the
  /// arena's: whichever thread TBB sends to a place, no more than `threads` places exist.
  void note_worker(int place) noexcept;
  const int threads;
  const SchedulerOptions options;
  const int patience;                // turns that an idle worker waits before it leaves
  tbb::task_arena* arena = nullptr;  // of helpers, none where there are none; callers work outside
  Trace* trace = nullptr;            // changes between runs only
  mutable std::mutex mutex;
  std::bitset<most_threads> worked;  // guarded by mutex
};

}  // namespace convolume
