// The inside of a Scheduler: a TBB arena, and which threads have worked in it.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include <tbb/task_arena.h>

#include "convolume/scheduler.hpp"

namespace convolume {

struct Scheduler::Impl {
  explicit Impl(int thread_count);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Remembers the calling thread; called once per stretch of work, not per task.
  void note_worker() noexcept;

  const int threads;
  const int patience;                      // turns that an idle worker waits before it leaves
  std::unique_ptr<tbb::task_arena> arena;  // of helpers; callers work outside
  Trace* trace = nullptr;                  // changes between runs only
  mutable std::mutex mutex;
  std::set<std::thread::id> workers;
};

}  // namespace convolume
