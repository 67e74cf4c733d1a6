#include "scheduler/helper_threads.hpp"

#include <csignal>

#include <unistd.h>

#include "scheduler/trace.hpp"

namespace convolume::scheduler {
namespace {

/// After shorter rests helpers come as fast without our doing.
constexpr std::int64_t long_rest = 5'000'000;  // nanoseconds

}  // namespace

void HelperThreads::came(int place) noexcept {
  const pid_t self = ::gettid();
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.thread != self) continue;
    restore(slot);
    slot.thread = 0;
  }
  Slot& mine = slots_[static_cast<std::size_t>(place)];
  restore(mine);  // of a thread that TBB has replaced by this one
  mine.thread = self;
  mine.away = false;
}

void HelperThreads::left(int place) noexcept {
  const std::int64_t now = trace_clock();
  const std::lock_guard lock(mutex_);
  Slot& mine = slots_[static_cast<std::size_t>(place)];
  mine.away = true;
  mine.left_at = now;
}

void HelperThreads::keep_off_caller(const void* owner) noexcept {
  const std::int64_t now = trace_clock();
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.thread == 0 || !slot.away || slot.kept_by != nullptr || now - slot.left_at < long_rest) continue;
    if (keep_off(slot, ::sched_getcpu())) slot.kept_by = owner;
  }
}

void HelperThreads::let_go(const void* owner) noexcept {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.kept_by == owner) restore(slot);
  }
}

bool HelperThreads::keep_off(Slot& slot, int processor) noexcept {
  // Not a thread of another process, should the number have been given away again.
  if (processor < 0 || ::tgkill(::getpid(), slot.thread, 0) != 0) return false;
  CPU_ZERO(&slot.before);
  if (::sched_getaffinity(slot.thread, sizeof slot.before, &slot.before) != 0) return false;
  cpu_set_t others = slot.before;
  CPU_CLR(static_cast<unsigned>(processor), &others);
  if (CPU_COUNT(&others) == 0 || CPU_EQUAL(&others, &slot.before)) return false;
  return ::sched_setaffinity(slot.thread, sizeof others, &others) == 0;
}

void HelperThreads::restore(Slot& slot) noexcept {
  if (slot.kept_by == nullptr) return;
  slot.kept_by = nullptr;
  ::sched_setaffinity(slot.thread, sizeof slot.before, &slot.before);
}

}  // namespace convolume::scheduler
