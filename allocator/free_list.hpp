// A lock-free list of free blocks.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace convolume::allocator {

constexpr std::uint32_t none = 0xFFFFFFFFu;  ///< the index that means "no block"

/// The source of atomics: the standard library here, and a model checker in tests/allocator/free_list_model.cpp.
struct StdAtomics {
  template <class T>
  using Atomic = std::atomic<T>;
};

/// The memory orders of a FreeList and the step of its tag. The model checker refutes every weaker choice.
struct FreeListOrders {
  /// release: a thread that takes this index must see its link, its entry in the table, and everything that the freeing
  /// thread did with the block.
  static constexpr std::memory_order push = std::memory_order_release;
  /// acquire: pairs with the push that installed this head. Every later change of `head_` is a read-modify-write and so
  /// belongs to the release sequence of that push. Therefore one acquire also sees the links of all indices below the
  /// head.
  static constexpr std::memory_order read_head = std::memory_order_acquire;
  /// acquire: a failed exchange continues with the head that it found, as if it had just read it. A successful exchange
  /// finds the same value, tag included, that an acquire has read before. It needs no order of its own.
  static constexpr std::memory_order pop = std::memory_order_acquire;
  static constexpr std::uint64_t tag_step = 1;
};

/// A table of numbered entries that never move: the links of a list and a payload for each block. The entries are
/// stored separately from the blocks. Therefore, a thread that reads the link of a block which another thread has just
/// taken reads a stale number, never the user's bytes.
///
/// Thread-safe except grow(), which must have one caller at a time. grow() may throw std::bad_alloc; the table stays
/// usable then.
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

  /// Makes the indices [0, total) usable.
  void grow(std::uint32_t total) {
    for (std::size_t s = 0; s < segments_.size() && first_of(s) < total; ++s) {
      if (segments_[s].load(std::memory_order_relaxed) != nullptr) continue;
      // relaxed: an index reaches another thread through a list, or through the user who hands over a block. Both order
      // this store before that thread's access.
      segments_[s].store(new Entry[size_of(s)], std::memory_order_relaxed);
    }
  }

  Payload& operator[](std::uint32_t index) noexcept { return entry(index).payload; }
  typename Atomics::template Atomic<std::uint32_t>& next(std::uint32_t index) noexcept { return entry(index).next; }

 private:
  struct Entry {
    typename Atomics::template Atomic<std::uint32_t> next;  // valid only while the index is in a list
    Payload payload;
  };

  // Segment s holds first_segment << s entries, so that the table grows without moving an entry.
  static std::size_t size_of(std::size_t segment) { return std::size_t{first_segment} << segment; }
  static std::size_t first_of(std::size_t segment) { return size_of(segment) - first_segment; }

  Entry& entry(std::uint32_t index) noexcept {
    const auto segment = static_cast<std::size_t>(std::bit_width(index / first_segment + 1)) - 1;
    return segments_[segment].load(std::memory_order_relaxed)[index - first_of(segment)];
  }

  // 26 segments hold all 2^32 indices if first_segment is 64.
  std::array<typename Atomics::template Atomic<Entry*>, 26> segments_;
};

/// A Treiber stack of block indices (R. K. Treiber, "Systems Programming: Coping with Parallelism", IBM RJ 5118, 1986).
///
/// Invariant: `head_` is (tag << 32) | index of the top block; the index is `none` if the list is empty. Every index is
/// in at most one list, and only once. The tag changes with every successful exchange. This solves the ABA problem: if
/// a block has been taken since its link was read, the exchange fails. It could succeed wrongly only if a thread slept
/// through 2^32 exchanges of one list.
template <class Atomics, class Orders = FreeListOrders>
class FreeList {
 public:
  FreeList() { head_.store(none, std::memory_order_relaxed); }
  FreeList(const FreeList&) = delete;
  FreeList& operator=(const FreeList&) = delete;

  template <class Table>
  void push(Table& table, std::uint32_t index) noexcept {
    auto& next = table.next(index);
    // relaxed, here and when the exchange fails: the value only becomes the link of this block; nothing is read through
    // it.
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      // relaxed: the exchange below releases this store.
      next.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
    } while (!head_.compare_exchange_weak(head, advanced(head, index), Orders::push, std::memory_order_relaxed));
  }

  /// Takes the top index, or returns `none`.
  template <class Table>
  std::uint32_t pop(Table& table) noexcept {
    std::uint64_t head = head_.load(Orders::read_head);
    while (static_cast<std::uint32_t>(head) != none) {
      const auto index = static_cast<std::uint32_t>(head);
      // relaxed: if the exchange succeeds, the link was written before the push from which `head` was acquired.
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
