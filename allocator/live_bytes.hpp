// How many bytes are in use, and how many may be.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "convolume/error.hpp"

namespace convolume::allocator {

/// Bytes of live blocks. Threads add what they hold in steps of `most_pending`, or, where there is a budget, at once.
class LiveBytes {
 public:
  /// What a thread may hold or have given back without saying so.
  static constexpr std::int64_t most_pending = std::int64_t{64} << 10;

  explicit LiveBytes(std::size_t budget) : budget_(budget) {}

  void add(std::int64_t bytes) noexcept {
    const std::int64_t now = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (bytes > 0) raise_peak(now);
  }

  /// Throws MemoryBudgetExceeded. An exchange in place of an addition that is taken back: a request that is refused
  /// must not be the reason for the refusal of another one. Returns what is held with them, for raise_peak() once they
  /// are handed out.
  std::int64_t charge(std::size_t bytes) {
    std::int64_t held = live_.load(std::memory_order_relaxed);
    do {
      const auto now = static_cast<std::size_t>(held);
      if (bytes > budget_ || now > budget_ - bytes) throw MemoryBudgetExceeded(bytes, now, budget_);
    } while (!live_.compare_exchange_weak(held, held + static_cast<std::int64_t>(bytes), std::memory_order_relaxed));
    return held + static_cast<std::int64_t>(bytes);
  }

  bool budgeted() const noexcept { return budget_ != 0; }
  std::int64_t get() const noexcept { return live_.load(std::memory_order_relaxed); }
  std::int64_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
  void raise_peak(std::int64_t to) noexcept {
    std::int64_t highest = peak_.load(std::memory_order_relaxed);
    while (highest < to && !peak_.compare_exchange_weak(highest, to, std::memory_order_relaxed)) {
    }
  }

 private:
  const std::size_t budget_;
  std::atomic<std::int64_t> live_{0}, peak_{0};
};

}  // namespace convolume::allocator
