// Where runs get their helpers from.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include <tbb/task_arena.h>

#include "scheduler/spin_lock.hpp"

namespace convolume::scheduler {

class Run;

/// A TBB arena whose helper threads stay for a while after a run. Waking a sleeping thread takes 40 to 100 us, which is
/// longer than many convolutions. A program that calls one after the other finds its helpers awake.
///
/// An invitation is the request of a run that a helper joins it.
///
/// Invariant, under `lock_`: there are at most as many invitations in `invitations_` as `waiting_` helpers, and each of
/// these looks into `invitations_` before it leaves. So each invitation is read. A child of fork() has no helpers, and
/// never uses an arena.
class HelperArena {
 public:
  /// The arena has places for `threads` threads, callers included.
  explicit HelperArena(int threads);

  /// Invites a helper to a run: one that stays here, or else one of TBB's threads. A helper that stays looks for
  /// invitations `patience` times. If `keep_off`, no helper wakes on the processor of the calling thread. Throws if
  /// there is neither memory nor a thread.
  void invite(const std::shared_ptr<Run>& run, int patience, bool keep_off);

 private:
  bool invite_waiting(const std::shared_ptr<Run>& run) noexcept;
  void help(std::shared_ptr<Run> run, int patience) noexcept;
  std::shared_ptr<Run> wait_for_invitation(int patience) noexcept;

  tbb::task_arena arena_;
  SpinLock lock_;  // guards the members up to the next comment
  int waiting_ = 0;
  std::vector<std::shared_ptr<Run>> invitations_;  // never grows beyond its first capacity
  // The size of invitations_. It is written under the lock, but read without it.
  alignas(64) std::atomic<std::size_t> invitation_count_{0};
};

}  // namespace convolume::scheduler
