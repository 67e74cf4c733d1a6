// Counts the bytes in use and enforces the budget.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "convolume/error.hpp"

namespace convolume::allocator {

/// Counts the bytes of live blocks. Threads add their bytes in steps of about `most_pending`, or immediately if there
/// is a budget.
class LiveBytes {
 public:
  /// Most bytes that a thread may have taken or given back without adding them here.
  static constexpr std::int64_t most_pending = std::int64_t{64} << 10;

  explicit LiveBytes(std::size_t budget) : budget_(budget) {}

  void add(std::int64_t bytes) noexcept {
    const std::int64_t now = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (bytes > 0) raise_peak(now);
  }

  /// Adds `bytes`, or throws MemoryBudgetExceeded. It uses a compare-exchange, not an addition that is undone, because
  /// a refused request must not cause the refusal of another one. Returns the bytes that are then in use, for
  /// raise_peak() after the block is handed out.
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
