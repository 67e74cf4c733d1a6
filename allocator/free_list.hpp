// A lock-free list of free blocks.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace convolume::allocator {

constexpr std::uint32_t none = 0xFFFFFFFFu;  ///< the index of no block

/// Where atomics come from: the standard library here, a model checker in tests/allocator/free_list_model.cpp.
struct StdAtomics {
  template <class T>
  using Atomic = std::atomic<T>;
};

/// The memory orders of a FreeList and the step of its tag. Each weaker one is refuted by the model checker.
struct FreeListOrders {
  /// release: whoever takes this index must see its link, its place in the table, and all that the freeing thread did
  /// with the block.
  static constexpr std::memory_order push = std::memory_order_release;
  /// acquire: pairs with the push that installed this head. Every later change of `head_` is a read-modify-write and
  /// so part of that push's release sequence, hence one acquire sees the links of all indices below the head as well.
  static constexpr std::memory_order read_head = std::memory_order_acquire;
  /// acquire: an exchange that fails goes on with the head that it found, as if it had just read it. One that succeeds
  /// finds the very value, tag included, that an acquire has read before, and needs no order of its own.
  static constexpr std::memory_order pop = std::memory_order_acquire;
  static constexpr std::uint64_t tag_step = 1;
};

/// Numbered entries that never move: the links of a list and what is to be known about each block. They lie beside the
/// blocks, so that reading the link of a block that another thread has just taken reads a stale number and never the
/// user's bytes.
///
/// Thread-safe but for grow(), which has one caller at a time. grow() throws std::bad_alloc and then has changed
/// nothing that matters.
template <class Atomics, class Payload, std::uint32_t first_segment = 64>
class BlockTable {
 public:
  BlockTable() {
    for (auto& segment : segments_) segment.store(nullptr, std::memory_order_relaxed);
  }
  ~BlockTable() {
    for (auto& segment : segments_) delete[] segment.load(std::memory_order_relaxed);
  }
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  /// Makes indices [0, total) usable.
  void grow(std::uint32_t total) {
    for (std::size_t s = 0; s < segments_.size() && first_of(s) < total; ++s) {
      if (segments_[s].load(std::memory_order_relaxed) != nullptr) continue;
      // relaxed: an index reaches another thread through a list or through the user's own hand-over of a block, and
      // both order this store before that thread's look.
      segments_[s].store(new Entry[size_of(s)], std::memory_order_relaxed);
    }
  }

  Payload& operator[](std::uint32_t index) noexcept { return entry(index).payload; }
  typename Atomics::template Atomic<std::uint32_t>& next(std::uint32_t index) noexcept { return entry(index).next; }

 private:
  struct Entry {
    typename Atomics::template Atomic<std::uint32_t> next;  // meaningful only while the index is in a list
    Payload payload;
  };

  // Segment s holds first_segment << s entries, so that the table grows without moving anything.
  static std::size_t size_of(std::size_t segment) { return std::size_t{first_segment} << segment; }
  static std::size_t first_of(std::size_t segment) { return size_of(segment) - first_segment; }

  Entry& entry(std::uint32_t index) noexcept {
    const auto segment = static_cast<std::size_t>(std::bit_width(index / first_segment + 1)) - 1;
    return segments_[segment].load(std::memory_order_relaxed)[index - first_of(segment)];
  }

  // 26 segments hold all 2^32 indices from 64 on.
  std::array<typename Atomics::template Atomic<Entry*>, 26> segments_;
};

/// A Treiber stack of block indices (R. K. Treiber, "Systems Programming: Coping with Parallelism", IBM RJ 5118, 1986).
///
/// Invariant: `head_` is (tag << 32) | index of the top block, `none` where the list is empty; every index is in one
/// list at most, and once. The tag changes with every successful exchange, so that a link that was read from a block
/// which has since been taken is never installed (ABA): a thread would have to sleep through 2^32 exchanges of one
/// list.
template <class Atomics, class Orders = FreeListOrders>
class FreeList {
 public:
  FreeList() { head_.store(none, std::memory_order_relaxed); }
  FreeList(const FreeList&) = delete;
  FreeList& operator=(const FreeList&) = delete;

  template <class Table>
  void push(Table& table, std::uint32_t index) noexcept {
    auto& next = table.next(index);
    // relaxed, here and where the exchange fails: the value only becomes this block's link; nothing is read through it.
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      // relaxed: the exchange below releases it.
      next.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
    } while (!head_.compare_exchange_weak(head, advanced(head, index), Orders::push, std::memory_order_relaxed));
  }

  /// The top index, or `none`.
  template <class Table>
  std::uint32_t pop(Table& table) noexcept {
    std::uint64_t head = head_.load(Orders::read_head);
    while (static_cast<std::uint32_t>(head) != none) {
      const auto index = static_cast<std::uint32_t>(head);
      // relaxed: where the exchange succeeds, the link was written before the push that `head` was acquired from.
      const std::uint32_t next = table.next(index).load(std::memory_order_relaxed);
      if (head_.compare_exchange_weak(head, advanced(head, next), Orders::pop, Orders::pop)) return index;
    }
    return none;
  }

 private:
  static std::uint64_t advanced(std::uint64_t head, std::uint32_t index) noexcept {
    return (((head >> 32) + Orders::tag_step) << 32) | index;
  }

  typename Atomics::template Atomic<std::uint64_t> head_;
};

}  // namespace convolume::allocator
