// What all threads share: free blocks of every size class, and the heap of pages behind them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "allocator/free_list.hpp"
#include "allocator/live_bytes.hpp"
#include "allocator/page_heap.hpp"
#include "allocator/size_classes.hpp"

namespace convolume::allocator {

/// Most blocks of a class that a thread keeps to itself, at most 64 KiB but for two blocks. Half as many, a batch, move
/// at once between a thread and the lists.
constexpr std::size_t most_cached = 64;
constexpr std::size_t cached_blocks(int size_class) {
  const std::size_t fit = (std::size_t{64} << 10) / block_bytes(size_class);
  return fit < 2 ? 2 : fit > most_cached ? most_cached : fit;
}
constexpr std::size_t batch_blocks(int size_class) { return cached_blocks(size_class) / 2; }

/// A block as the hardened mode sees it.
struct Located {
  std::byte* begin = nullptr;  ///< null where no block begins at the address
  std::size_t bytes = 0;
  std::atomic<std::uint8_t>* guard = nullptr;
  /// Of a large block: of each of its pages. Of no block: of the page that begins at the address, where it is one.
  std::span<std::atomic<std::uint8_t>> notes{};
};

/// Thread-safe. What allocates throws what upstream throws, or std::bad_alloc, and then has changed nothing that can be
/// seen.
class Central {
 public:
  /// `live` must outlive it.
  Central(std::pmr::memory_resource* upstream, const LiveBytes& live) : live_(live), heap_(upstream) {}

  /// Up to a batch of free blocks of a small class, at least one; returns how many. `out` holds a batch.
  std::size_t take_batch(int size_class, std::span<std::byte*> out);
  /// Takes blocks of a small class back, at most a batch.
  void give_batch(int size_class, std::span<std::byte* const> blocks) noexcept;
  std::byte* take_small(int size_class);

  /// A block of whole pages.
  std::byte* take_large(std::size_t bytes);
  void give_large(std::byte* block) noexcept;

  /// Gives all pages that only free blocks lie in back to the system; returns how many bytes.
  std::size_t trim() noexcept;

  /// The block that begins at `address`, which may be any address.
  Located locate(const void* address) noexcept;

  /// Of a small class.
  std::size_t blocks(int size_class) const noexcept {
    return classes_[static_cast<std::size_t>(size_class)].blocks.load(std::memory_order_relaxed);
  }
  const PageHeap& heap() const noexcept { return heap_; }

 private:
  struct SmallBlock {
    std::byte* begin;     // written before the index is first in a list
    std::uint32_t chain;  // the next block of the same batch; belongs to whoever holds the batch
    std::atomic<std::uint8_t> guard;
  };
  using SmallBlocks = BlockTable<StdAtomics, SmallBlock>;

  /// The free list of a small class holds batches: the index of a batch is that of its first block.
  struct SizeClass {
    FreeList<StdAtomics> free;
    std::atomic<std::size_t> blocks{0};
    std::unique_ptr<SmallBlocks> table;           // of a small class that was used
    std::vector<std::uint32_t> slabs;             // span of each slab, or `none`
    std::vector<std::uint32_t> numbers_to_reuse;  // in `slabs`
  };

  SizeClass& of(int size_class) noexcept { return classes_[static_cast<std::size_t>(size_class)]; }
  std::uint32_t index_of(int size_class, const std::byte* block) noexcept;
  std::size_t unpack(SizeClass& c, std::uint32_t batch, std::span<std::byte*> out) noexcept;
  void push_chain(int size_class, std::uint32_t first, std::uint32_t count) noexcept;
  std::size_t carve_slab(int size_class, std::span<std::byte*> out);
  std::uint32_t new_slab(int size_class);
  std::uint32_t run_of(std::uint32_t pages, Zone zone);
  std::uint32_t used_run_of(std::uint32_t pages, Zone zone);
  std::uint32_t untouched_run_of(std::uint32_t pages, Zone zone);
  bool may_touch(std::uint32_t pages, Zone zone) const noexcept;
  void drain_small() noexcept;
  void drain_class(int size_class) noexcept;
  std::uint32_t gather(int size_class, bool& whole) noexcept;
  void scatter(int size_class, std::uint32_t chain) noexcept;

  const LiveBytes& live_;
  std::array<SizeClass, small_classes> classes_;
  std::mutex mutex_;  // guards the heap, and what of a class is neither atomic nor a table's entry
  PageHeap heap_;
  std::size_t slab_bytes_ = 0;  // of all slabs that there are now
};

}  // namespace convolume::allocator
