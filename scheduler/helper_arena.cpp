#include "scheduler/helper_arena.hpp"

#include <mutex>
#include <utility>

#include "scheduler/helper_threads.hpp"
#include "scheduler/run.hpp"
#include "scheduler/tsan.hpp"

namespace convolume::scheduler {

HelperArena::HelperArena(int threads) : arena_(threads) { mail_.reserve(static_cast<std::size_t>(threads)); }

void HelperArena::invite(const std::shared_ptr<Run>& run, int patience) {
  if (mail(run)) return;
  HelperThreads::instance().keep_off_caller(run.get());
  tsan_release(run.get());
  const TsanIgnore ignore;
  arena_.enqueue([this, run, patience] {
    const TsanWatch watch;
    tsan_acquire(run.get());
    help(run, patience);
  });
}

/// Leaves an invitation for a helper that stays and has none yet. Returns whether there is one.
bool HelperArena::mail(const std::shared_ptr<Run>& run) noexcept {
  const std::lock_guard lock(lock_);
  if (std::ssize(mail_) == staying_ || mail_.size() == mail_.capacity()) return false;
  mail_.push_back(run);
  // relaxed: a hint; the lock passes the invitation on.
  letters_.store(mail_.size(), std::memory_order_relaxed);
  return true;
}

/// Helps a run, and then others that invite this helper while it stays.
void HelperArena::help(const std::shared_ptr<Run>& run, int patience) noexcept {
  HelperThreads::instance().came();
  if (run->help()) {
    while (const std::shared_ptr<Run> next = stay(patience)) next->help();
  }
  HelperThreads::instance().left();
}

/// Waits for an invitation. Returns null if none has come.
std::shared_ptr<Run> HelperArena::stay(int patience) noexcept {
  {
    const std::lock_guard lock(lock_);
    ++staying_;
  }
  for (; patience > 0 && letters_.load(std::memory_order_relaxed) == 0; --patience) pause();
  std::shared_ptr<Run> next;
  const std::lock_guard lock(lock_);
  --staying_;
  if (mail_.empty()) return next;
  next = std::move(mail_.back());
  mail_.pop_back();
  letters_.store(mail_.size(), std::memory_order_relaxed);
  return next;
}

}  // namespace convolume::scheduler
