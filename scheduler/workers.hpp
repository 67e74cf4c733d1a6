// The inside of a Scheduler: a TBB arena, and which threads have worked in it.
#pragma once

#include <mutex>
#include <thread>
#include <vector>

#include <tbb/task_arena.h>

#include "convolume/scheduler.hpp"

namespace convolume {

struct Scheduler::Impl {
  explicit Impl(int thread_count);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Remembers the calling thread; called once per stretch of work, not per task.
  void note_worker() noexcept;
  const int threads;
  const int patience;                // turns that an idle worker waits before it leaves
  tbb::task_arena* arena = nullptr;  // of helpers, none where there are none; callers work outside
  Trace* trace = nullptr;            // changes between runs only
  mutable std::mutex mutex;
  std::vector<std::thread::id> workers;  // guarded by mutex; each once
};

}  // namespace convolume
