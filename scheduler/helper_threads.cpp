#include "scheduler/helper_threads.hpp"

#include <algorithm>
#include <csignal>

#include <unistd.h>

namespace convolume::scheduler {
namespace {

/// Not of another process, should the number have been given away again, nor of the one that this was forked from.
bool is_ours(pid_t thread) noexcept { return ::tgkill(::getpid(), thread, 0) == 0; }

}  // namespace

HelperThreads& HelperThreads::instance() {
  static auto& threads = *new HelperThreads;  // never destroyed: helpers may come and go until the process ends
  return threads;
}

void HelperThreads::expect(int threads) {
  const std::lock_guard lock(mutex_);
  helpers_.reserve(helpers_.size() + static_cast<std::size_t>(threads));
}

HelperThreads::Helper* HelperThreads::find(pid_t thread) noexcept {
  const auto found =
      std::find_if(helpers_.begin(), helpers_.end(), [&](const Helper& h) { return h.thread == thread; });
  return found == helpers_.end() ? nullptr : &*found;
}

void HelperThreads::came() noexcept {
  const pid_t self = ::gettid();
  const std::lock_guard lock(mutex_);
  Helper* helper = find(self);
  if (helper == nullptr) {
    if (helpers_.size() == helpers_.capacity()) return;
    helpers_.push_back({.thread = self});
    return;
  }
  restore(*helper);
  helper->away = false;
}

void HelperThreads::left() noexcept {
  const pid_t self = ::gettid();
  const std::lock_guard lock(mutex_);
  Helper* helper = find(self);
  if (helper != nullptr) helper->away = true;
}

void HelperThreads::keep_off_caller(const void* owner) noexcept {
  const pid_t self = ::gettid();
  const std::lock_guard lock(mutex_);
  for (Helper& helper : helpers_) {
    // Between two runs in which it helps a thread of TBB may call for helpers itself.
    if (!helper.away || helper.kept_by != nullptr || helper.thread == self) continue;
    if (keep_off(helper, ::sched_getcpu())) helper.kept_by = owner;
  }
}

void HelperThreads::let_go(const void* owner) noexcept {
  const std::lock_guard lock(mutex_);
  for (Helper& helper : helpers_) {
    if (helper.kept_by == owner) restore(helper);
  }
}

bool HelperThreads::keep_off(Helper& helper, int processor) noexcept {
  if (processor < 0 || !is_ours(helper.thread)) return false;
  CPU_ZERO(&helper.before);
  if (::sched_getaffinity(helper.thread, sizeof helper.before, &helper.before) != 0) return false;
  cpu_set_t others = helper.before;
  CPU_CLR(static_cast<unsigned>(processor), &others);
  if (CPU_COUNT(&others) == 0 || CPU_EQUAL(&others, &helper.before)) return false;
  return ::sched_setaffinity(helper.thread, sizeof others, &others) == 0;
}

void HelperThreads::restore(Helper& helper) noexcept {
  if (helper.kept_by == nullptr) return;
  helper.kept_by = nullptr;
  if (is_ours(helper.thread)) ::sched_setaffinity(helper.thread, sizeof helper.before, &helper.before);
}

}  // namespace convolume::scheduler
