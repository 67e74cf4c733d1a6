// A lock for a few instructions.
#pragma once

#include <atomic>
#include <thread>

#include "core/instruction_set.hpp"

namespace convolume::scheduler {

/// A lock for critical sections of some tens of nanoseconds that do not allocate, wait or call user code. A std::mutex
/// would put threads to sleep there, and waking a thread takes much longer than an empty task. Meets the requirements
/// of BasicLockable.
class SpinLock {
 public:
  void lock() noexcept {
    // acquire: sees what the last holder wrote.
    while (held_.exchange(true, std::memory_order_acquire)) wait();
  }
  // release: the next holder sees what this holder wrote.
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  void wait() const noexcept {
    constexpr int patience = 200;
    // relaxed: only a hint that exchange() may succeed; reading leaves the cache line with its holder.
    for (int i = 0; held_.load(std::memory_order_relaxed); ++i) {
      // If there are more threads than CPUs, the holder may have lost its CPU.
      i < patience ? spin_pause() : std::this_thread::yield();
    }
  }

  std::atomic<bool> held_{false};
};

}  // namespace convolume::scheduler
