// Where the threads that help in an arena wake up.
#pragma once

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
/// So who calls keeps the helpers that have rested off its own processor, until they come or the run ends. Processors
/// that somebody else has chosen for a thread are respected, and restored as they were.
///
/// Thread-safe. Allocates at construction only. What the system refuses stays as it is.
class HelperThreads {
 public:
  /// Places 1 to `places` - 1 are those of helpers.
  explicit HelperThreads(int places) : slots_(static_cast<std::size_t>(places)) {}

  /// The calling thread begins to help at a place.
  void came(int place) noexcept;
  /// It goes away from there.
  void left(int place) noexcept;
  /// Before helpers are called: `owner`, any address, is who lets them go again.
  void keep_off_caller(const void* owner) noexcept;
  void let_go(const void* owner) noexcept;

 private:
  /// The last thread at a place; each thread is in one slot. TBB keeps its threads as long as the process lives.
  struct Slot {
    pid_t thread = 0;
    bool away = false;
    std::int64_t left_at = 0;
    const void* kept_by = nullptr;
    cpu_set_t before{};  // where it may run otherwise, as long as somebody keeps it off
  };

  static bool keep_off(Slot& slot, int processor) noexcept;
  static void restore(Slot& slot) noexcept;

  std::mutex mutex_;
  std::vector<Slot> slots_;  // guarded by mutex_
};

}  // namespace convolume::scheduler
