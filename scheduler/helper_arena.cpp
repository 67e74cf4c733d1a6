#include "scheduler/helper_arena.hpp"

#include <mutex>
#include <utility>

#include "scheduler/helper_threads.hpp"
#include "scheduler/run.hpp"
#include "scheduler/tsan.hpp"

namespace convolume::scheduler {

HelperArena::HelperArena(int threads) : arena_(threads) { invitations_.reserve(static_cast<std::size_t>(threads)); }

void HelperArena::invite(const std::shared_ptr<Run>& run, int patience, bool keep_off) {
  if (invite_waiting(run)) return;
  if (keep_off) HelperThreads::instance().keep_off_caller(run.get());
  tsan_release(run.get());
  const TsanIgnore ignore;
  arena_.enqueue([this, run, patience] {
    const TsanWatch watch;
    tsan_acquire(run.get());
    help(run, patience);
  });
}

/// Leaves an invitation for a helper that stays and has none yet. Returns whether there is one.
bool HelperArena::invite_waiting(const std::shared_ptr<Run>& run) noexcept {
  const std::lock_guard lock(lock_);
  if (std::ssize(invitations_) == waiting_ || invitations_.size() == invitations_.capacity()) return false;
  invitations_.push_back(run);
  // relaxed: a hint; the lock passes the invitation on.
  invitation_count_.store(invitations_.size(), std::memory_order_relaxed);
  return true;
}

/// Helps a run, and then others that invite this helper while it stays.
void HelperArena::help(std::shared_ptr<Run> run, int patience) noexcept {
  HelperThreads::instance().came();
  // A helper that comes after the end of a short run waits as well: it took long to wake, and the next run may be
  // short.
  for (; run != nullptr; run = wait_for_invitation(patience)) run->help();
  HelperThreads::instance().left();
}

/// Waits for an invitation. Returns null if none has come.
std::shared_ptr<Run> HelperArena::wait_for_invitation(int patience) noexcept {
  std::unique_lock lock(lock_);
  ++waiting_;
  while (invitations_.empty() && patience > 0) {  // another helper may take the invitation that ended a turn
    lock.unlock();
    do spin_pause();
    while (--patience > 0 && invitation_count_.load(std::memory_order_relaxed) == 0);
    lock.lock();
  }
  --waiting_;
  if (invitations_.empty()) return nullptr;
  std::shared_ptr<Run> next = std::move(invitations_.back());
  invitations_.pop_back();
  invitation_count_.store(invitations_.size(), std::memory_order_relaxed);
  return next;
}

}  // namespace convolume::scheduler
