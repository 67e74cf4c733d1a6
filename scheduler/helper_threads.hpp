// Where the threads that help with runs wake up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include <sched.h>
#include <sys/types.h>

namespace convolume::scheduler {

/// Linux wakes a thread on an idle processor near the one that it had, or else on the processor of whoever wakes it.
/// In a virtual machine whose host tells which processors it has taken away, one that has idled for some milliseconds
/// counts as taken (`vcpu_is_preempted`), so that a helper which is called after a rest waits behind its own caller
/// until that one's time slice ends: 0.7 to 2.8 ms here, more than many a convolution takes.
///
/// So who calls keeps the helpers that have rested off its own processor, until they come to any run, or the run ends.
/// Processors that somebody else has chosen for a thread are respected, and restored as they were. TBB's threads serve
/// all arenas of a process, so that one object knows them all, and each is kept off by one run at a time.
///
/// Thread-safe. Allocates in expect() only. What the system refuses stays as it is.
class HelperThreads {
 public:
  /// Of the process.
  static HelperThreads& instance();

  /// So many more threads may help; those that find no room are let wake up anywhere.
  void expect(int threads);
  /// The calling thread begins to help, and goes away again. Here and below, `now` is trace_clock().
  void came() noexcept;
  void left(std::int64_t now) noexcept;
  /// Before helpers are called: `owner`, any address, is who lets them go again.
  void keep_off_caller(const void* owner, std::int64_t now) noexcept;
  void let_go(const void* owner) noexcept;

  /// Nanoseconds; after shorter rests helpers come as fast without our doing.
  static constexpr std::int64_t long_rest = 5'000'000;

 private:
  /// TBB keeps its threads as long as the process lives.
  struct Helper {
    pid_t thread = 0;
    bool away = false;
    std::int64_t left_at = 0;
    const void* kept_by = nullptr;
    cpu_set_t before{};  // where it may run otherwise, as long as somebody keeps it off
  };

  Helper* find(pid_t thread) noexcept;
  static bool keep_off(Helper& helper, int processor) noexcept;
  static void restore(Helper& helper) noexcept;

  std::mutex mutex_;
  std::vector<Helper> helpers_;  // guarded by mutex_; never above its capacity outside of expect()
};

}  // namespace convolume::scheduler
