#include "scheduler/helper_threads.hpp"

#include <algorithm>
#include <csignal>

#include <unistd.h>

namespace convolume::scheduler {
namespace {

/// Returns whether `thread` is a thread of this process. It is not if its number has been reused by another process, or
/// if this process was forked from the one that it belongs to.
bool is_ours(pid_t thread) noexcept { return ::tgkill(::getpid(), thread, 0) == 0; }

bool processors_of(pid_t thread, cpu_set_t& processors) noexcept {
  CPU_ZERO(&processors);
  return ::sched_getaffinity(thread, sizeof processors, &processors) == 0;
}

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
  restore(*helper);  // also needed if its mask was set again after let_go(): see HelperThreads
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
    // The calling thread may itself be one of TBB's threads that helps with other runs; it is skipped.
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
  cpu_set_t now;
  if (!processors_of(helper.thread, now)) return false;
  // If the present mask is the one that this class set last, somebody saved it and set it again. It is not their own
  // choice, so `before` stays.
  if (!CPU_EQUAL(&now, &helper.others)) helper.before = now;
  helper.others = helper.before;
  CPU_CLR(static_cast<unsigned>(processor), &helper.others);
  if (CPU_COUNT(&helper.others) == 0 || CPU_EQUAL(&helper.others, &helper.before)) {
    CPU_ZERO(&helper.others);
    return false;
  }
  return ::sched_setaffinity(helper.thread, sizeof helper.others, &helper.others) == 0;
}

void HelperThreads::restore(Helper& helper) noexcept {
  helper.kept_by = nullptr;
  cpu_set_t now;
  if (CPU_COUNT(&helper.others) == 0 || !is_ours(helper.thread) || !processors_of(helper.thread, now)) return;
  if (CPU_EQUAL(&now, &helper.others)) ::sched_setaffinity(helper.thread, sizeof helper.before, &helper.before);
}

}  // namespace convolume::scheduler
