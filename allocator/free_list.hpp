// A lock-free list of the free blocks of one size.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace convolume::allocator {

/// A Treiber stack of block indices (R. K. Treiber, "Systems Programming: Coping with Parallelism", IBM RJ 5118, 1986).
///
/// Invariant: `head_` is (tag << 32) | index of the top block, `none` where the list is empty; every index is in the
/// list at most once and `next` of an index is meaningful only while it is in the list. Links live in a table beside
/// the blocks, so that reading the link of a block that another thread has just taken reads a stale number and never
/// the user's bytes; the tag changes with every successful exchange, so that a stale number is never installed (ABA).
class FreeList {
 public:
  static constexpr std::uint32_t none = 0xFFFFFFFFu;

  ~FreeList() {
    for (auto& segment : segments_) delete[] segment.load(std::memory_order_relaxed);
  }

  /// Makes indices [0, total) usable; new ones are not in the list yet. One caller at a time.
  void grow(std::uint32_t total) {
    for (std::size_t s = 0; s < segments_.size() && first_of(s) < total; ++s) {
      if (segments_[s].load(std::memory_order_relaxed) == nullptr) {
        // release: an index reaches another thread only through head_ or the user's own hand-over, but the table may
        // be read by a thread that holds a stale head.
        segments_[s].store(new Entry[size_of(s)], std::memory_order_release);
      }
    }
  }

  /// Where block `index` lies. Written once, before the index is first pushed or handed out.
  std::byte*& block(std::uint32_t index) noexcept { return entry(index).block; }

  void push(std::uint32_t index) noexcept {
    auto& next = entry(index).next;
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      next.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
      // release: whoever pops this index sees the link and all that the freeing thread did with the block.
    } while (!head_.compare_exchange_weak(head, advanced(head, index), std::memory_order_release,
                                          std::memory_order_relaxed));
  }

  /// The top index, or `none`.
  std::uint32_t pop() noexcept {
    // acquire: pairs with the push that installed this head, and so with the link and the block behind it.
    std::uint64_t head = head_.load(std::memory_order_acquire);
    while (static_cast<std::uint32_t>(head) != none) {
      const auto index = static_cast<std::uint32_t>(head);
      const std::uint32_t next = entry(index).next.load(std::memory_order_relaxed);
      if (head_.compare_exchange_weak(head, advanced(head, next), std::memory_order_acquire,
                                      std::memory_order_acquire)) {
        return index;
      }
    }
    return none;
  }

 private:
  struct Entry {
    std::atomic<std::uint32_t> next;
    std::byte* block;
  };

  // Segment s holds 64 << s entries, so that the table grows without moving and 2^32 indices need 26 segments.
  static std::size_t size_of(std::size_t segment) { return std::size_t{64} << segment; }
  static std::size_t first_of(std::size_t segment) { return (std::size_t{64} << segment) - 64; }

  Entry& entry(std::uint32_t index) noexcept {
    const auto segment = static_cast<std::size_t>(std::bit_width((std::uint64_t{index} + 64) >> 6)) - 1;
    return segments_[segment].load(std::memory_order_acquire)[index - first_of(segment)];
  }

  static std::uint64_t advanced(std::uint64_t head, std::uint32_t index) noexcept {
    return (((head >> 32) + 1) << 32) | index;
  }

  std::atomic<std::uint64_t> head_{none};
  std::array<std::atomic<Entry*>, 26> segments_{};
};

}  // namespace convolume::allocator
