// What all calls from Python share: the memory of results, schedulers by number of threads, and counters.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "python/bindings/openmp_team.hpp"
#include <nanobind/nanobind.h>

#include "convolume/memory.hpp"
#include "convolume/scheduler.hpp"

namespace convolume::python {

namespace nb = nanobind;

/// A computation without the GIL, for the lifetime of this object. It is made and destroyed by the thread that
/// computes. When the interpreter ends, running computations are waited for and new ones are refused: a thread that
/// asks for the GIL later would be ended in the middle of a destructor.
class Computation {
 public:
  /// Throws std::runtime_error if the interpreter is ending.
  Computation();
  ~Computation();
  Computation(const Computation&) = delete;
  Computation& operator=(const Computation&) = delete;

  /// Returns whether the interpreter is ending, so that long computations should stop.
  static bool refused() noexcept;
  /// Refuses computations from now on, and waits for the running ones. The caller has the GIL.
  static void refuse_and_wait();
  /// Forgets the computations of other threads, in a child of fork(), which does not have these threads.
  static void forget() noexcept;

 private:
  std::optional<nb::gil_scoped_release> released_;
};

/// Lives until the process ends, because arrays may outlive everything else. Thread-safe.
class Runtime {
 public:
  static Runtime& get();

  SlabResource& memory() noexcept { return memory_; }
  /// Returns the scheduler with so many threads; 0 means threads(). Schedulers are made once and kept. They change no
  /// affinity masks, because other packages, such as OpenCV, use the same threads of TBB.
  Scheduler& scheduler(int threads);
  /// Returns the scheduler whose helpers are the team of OpenMP. The caller has to have the team.
  Scheduler& team_scheduler(int threads);

  /// Return and set the threads of calls that name none: of this thread of Python if it has set a number, otherwise of
  /// the process. set_threads(0) returns to one per physical core. Throw InvalidArgument for negative numbers.
  int threads() const;
  void set_threads(int threads);
  /// Returns the threads of a call that names so many; 0 means threads(). Throws InvalidArgument for negative numbers.
  int checked(int threads) const;
  /// Replaces the number of this thread of Python; 0 removes it. Returns the one before.
  static int exchange_thread_local(int threads);

  struct Counters {
    std::atomic<std::int64_t> calls{0}, team_calls{0}, copies{0}, copied_bytes{0}, plans{0};
  };
  Counters& counters() noexcept { return counters_; }

 private:
  Runtime() = default;

  SlabResource memory_;
  std::atomic<int> threads_{0};          // 0: default_
  mutable std::atomic<int> default_{0};  // default_threads(), once it is known
  Counters counters_;
};

/// The threads and the memory of a call, for the lifetime of this object: the team of OpenMP if there is one and it is
/// free, otherwise threads of TBB.
class CallThreads {
 public:
  /// 0 means Runtime::threads(). Throws InvalidArgument for negative numbers.
  explicit CallThreads(int threads);
  Execution execution() const { return {scheduler_, &Runtime::get().memory()}; }

 private:
  OpenMpTeam::Use team_;
  Scheduler& scheduler_;
};

}  // namespace convolume::python
