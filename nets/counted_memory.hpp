// How many bytes are asked for at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory_resource>

namespace convolume::nets {

/// Passes requests on and counts the bytes of blocks that are handed out, as they were asked for: neither rounded up to
/// what an allocator makes of them nor what it keeps. Thread-safe as its upstream is.
class CountedMemory final : public std::pmr::memory_resource {
 public:
  explicit CountedMemory(std::pmr::memory_resource* upstream) : upstream_(upstream) {}

  std::size_t live() const noexcept { return live_.load(std::memory_order_relaxed); }
  /// The most at once since the last forget_peak().
  std::size_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
  /// While nobody allocates.
  void forget_peak() noexcept { peak_.store(live(), std::memory_order_relaxed); }

 private:
  // Relaxed throughout: each counter is read for its own sake, and nothing is handed over through them.
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* block = upstream_->allocate(bytes, alignment);
    const std::size_t now = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::size_t peak = peak_.load(std::memory_order_relaxed);
    while (peak < now && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override {
    live_.fetch_sub(bytes, std::memory_order_relaxed);
    upstream_->deallocate(block, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::pmr::memory_resource* upstream_;
  std::atomic<std::size_t> live_{0}, peak_{0};
};

}  // namespace convolume::nets
