// Controls on which CPUs the helper threads of runs wake up.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include <sched.h>
#include <sys/types.h>

namespace convolume::scheduler {

/// Removes the CPU of the calling thread from the affinity masks of sleeping helper threads.
///
/// Linux wakes a thread on an idle CPU near the CPU on which it last ran, or otherwise on the CPU of the thread that
/// wakes it. The hosts of some virtual machines report which virtual CPUs are preempted (`vcpu_is_preempted`). In
/// phases that may last for hours, an idle CPU counts as preempted there, after some milliseconds or at once. A helper
/// that is woken then waits behind its own caller, or the caller waits behind the helper, until a time slice ends. We
/// measured 0.7 to 4 ms, which is more than many convolutions take.
///
/// Therefore, the caller removes its own CPU from the affinity masks of sleeping helpers. The mask of a helper is
/// restored when it joins any run, or when the run ends. Masks that somebody else has chosen are respected, and
/// restored as they were. Somebody else may save a reduced mask and set it again later. The helper itself then restores
/// its mask when it joins a run. TBB's threads serve all arenas of a process. So one object knows all of them, and only
/// one run at a time changes the mask of a helper.
///
/// Thread-safe. Only expect() allocates. If the system refuses a change, the mask stays as it is.
class HelperThreads {
 public:
  /// Returns the only object of the process.
  static HelperThreads& instance();

  /// Reserves room for `threads` more helpers. Helpers that find no room keep their affinity masks.
  void expect(int threads);
  /// The calling thread calls came() when it begins to help, and left() when it stops.
  void came() noexcept;
  void left() noexcept;
  /// keep_off_caller() is called before helpers are woken. let_go() with the same `owner`, any address, restores the
  /// masks that this call has changed and that are still reduced.
  void keep_off_caller(const void* owner) noexcept;
  void let_go(const void* owner) noexcept;

 private:
  /// A helper thread. TBB keeps its threads until the process ends.
  struct Helper {
    pid_t thread = 0;
    bool away = false;
    const void* kept_by = nullptr;
    cpu_set_t before{};  // the affinity mask before it was last reduced
    cpu_set_t others{};  // the reduced mask; empty before the first reduction
  };

  Helper* find(pid_t thread) noexcept;
  static bool keep_off(Helper& helper, int processor) noexcept;
  static void restore(Helper& helper) noexcept;

  std::mutex mutex_;
  std::vector<Helper> helpers_;  // guarded by mutex_; only expect() lets it grow beyond its capacity
};

}  // namespace convolume::scheduler
