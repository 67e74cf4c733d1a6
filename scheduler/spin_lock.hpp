// A lock for a few instructions, and waiting for a few microseconds.
#pragma once

#include <atomic>
#include <thread>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace convolume::scheduler {

/// Tells the processor that the thread waits.
inline void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

/// For critical sections of some tens of nanoseconds, in which nothing is allocated, waited for or called: there a
/// std::mutex would send threads to sleep, and waking one takes longer than an empty task by far. Meets the
/// requirements of BasicLockable.
class SpinLock {
 public:
  void lock() noexcept {
    // acquire: what the last holder wrote is seen.
    while (held_.exchange(true, std::memory_order_acquire)) wait();
  }
  // release: the next holder sees what this one wrote.
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  void wait() const noexcept {
    constexpr int patience = 200;
    // relaxed: only a hint that exchange() may succeed; reading leaves the cache line with its holder.
    for (int i = 0; held_.load(std::memory_order_relaxed); ++i) {
      // The holder may have lost its processor, where there are more threads than processors.
      i < patience ? pause() : std::this_thread::yield();
    }
  }

  std::atomic<bool> held_{false};
};

}  // namespace convolume::scheduler
