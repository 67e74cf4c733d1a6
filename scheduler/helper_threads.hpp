// Where the threads that help with runs wake up.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include <sched.h>
#include <sys/types.h>

namespace convolume::scheduler {

/// Linux wakes a thread on an idle processor near the one that it had, or else on the processor of whoever wakes it.
/// In a virtual machine whose host tells which processors it has taken away, one that has idled counts as taken
/// (`vcpu_is_preempted`), after some milliseconds or at once, by the hour. Then a helper that is called waits behind
/// its own caller, or that one behind it, until a time slice ends: 0.7 to 4 ms here, more than many a convolution
/// takes.
///
/// So who calls keeps the helpers that are away off its own processor, until they come to any run, or the run ends.
/// Processors that somebody else has chosen for a thread are respected, and restored as they were; a thread that finds
/// itself kept off although nobody does so, since somebody has saved and set its processors meanwhile, restores them
/// when it comes. TBB's threads serve all arenas of a process, so that one object knows them all, and each is kept off
/// by one run at a time.
///
/// Thread-safe. Allocates in expect() only. What the system refuses stays as it is.
class HelperThreads {
 public:
  /// Of the process.
  static HelperThreads& instance();

  /// So many more threads may help; those that find no room are let wake up anywhere.
  void expect(int threads);
  /// The calling thread begins to help, and goes away again.
  void came() noexcept;
  void left() noexcept;
  /// Before helpers are called: `owner`, any address, is who lets them go again.
  void keep_off_caller(const void* owner) noexcept;
  void let_go(const void* owner) noexcept;

 private:
  /// TBB keeps its threads as long as the process lives.
  struct Helper {
    pid_t thread = 0;
    bool away = false;
    const void* kept_by = nullptr;
    cpu_set_t before{};  // where it might run until it was kept off last
    cpu_set_t others{};  // ... and where since then: empty before the first time
  };

  Helper* find(pid_t thread) noexcept;
  static bool keep_off(Helper& helper, int processor) noexcept;
  static void restore(Helper& helper) noexcept;

  std::mutex mutex_;
  std::vector<Helper> helpers_;  // guarded by mutex_; never above its capacity outside of expect()
};

}  // namespace convolume::scheduler
