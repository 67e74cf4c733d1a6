// What all calls from Python share: the memory of results, schedulers by number of threads, and counters.
#pragma once

#include <atomic>
#include <cstdint>

#include "convolume/memory.hpp"
#include "convolume/scheduler.hpp"

namespace convolume::python {

/// Lives until the process ends, because arrays may outlive everything else. Thread-safe.
class Runtime {
 public:
  static Runtime& get();

  SlabResource& memory() noexcept { return memory_; }
  /// Returns the scheduler with so many threads; 0 means threads(). Schedulers are made once and kept.
  Scheduler& scheduler(int threads);
  Execution execution(int threads) { return {scheduler(threads), &memory_}; }

  /// Return and set the threads of calls that name none: of this thread of Python if it has set a number, otherwise of
  /// the process. set_threads(0) returns to one per physical core. Throw InvalidArgument for negative numbers.
  int threads() const;
  void set_threads(int threads);
  /// Replaces the number of this thread of Python; 0 removes it. Returns the one before.
  static int exchange_thread_local(int threads);

  struct Counters {
    std::atomic<std::int64_t> calls{0}, copies{0}, copied_bytes{0}, plans{0};
  };
  Counters& counters() noexcept { return counters_; }

 private:
  Runtime() = default;

  SlabResource memory_;
  std::atomic<int> threads_{0};
  Counters counters_;
};

}  // namespace convolume::python
