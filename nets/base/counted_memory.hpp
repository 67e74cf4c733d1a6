// A memory resource that counts the bytes in use.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory_resource>

namespace convolume::nets {

/// Forwards requests to an upstream resource and counts the bytes of all live blocks. It counts the requested bytes:
/// neither the allocator's rounding nor what the allocator keeps is included. As thread-safe as its upstream.
class CountedMemory final : public std::pmr::memory_resource {
 public:
  explicit CountedMemory(std::pmr::memory_resource* upstream) : upstream_(upstream) {}

  std::size_t live() const noexcept { return live_.load(std::memory_order_relaxed); }
  /// Returns the highest value of live() after the last forget_peak().
  std::size_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
  /// Sets the peak to live(). Call it only while no thread allocates.
  void forget_peak() noexcept { peak_.store(live(), std::memory_order_relaxed); }

 private:
  // All operations are relaxed: each counter is only read for its own value and publishes no other data.
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
