// The state that all threads share: free blocks of every size class, and the page heap behind them.
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

/// Maximum number of blocks of a class that a thread caches: a full magazine. They hold at most 64 KiB, or are two
/// blocks. Half as many blocks, a block batch, move at once between a thread and the free lists.
constexpr std::size_t most_cached = 64;
constexpr std::size_t cached_blocks(int size_class) {
  const std::size_t fit = (std::size_t{64} << 10) / block_bytes(size_class);
  return fit < 2 ? 2 : fit > most_cached ? most_cached : fit;
}
constexpr std::size_t batch_blocks(int size_class) { return cached_blocks(size_class) / 2; }

/// A block as the hardened mode sees it.
struct Located {
  std::byte* begin = nullptr;  ///< null if no block begins at the address
  std::size_t bytes = 0;
  std::atomic<std::uint8_t>* guard = nullptr;
  /// For a large block: the notes of its pages. If no block begins at the address: the note of the page that begins
  /// there, if any.
  std::span<std::atomic<std::uint8_t>> notes{};
};

/// The shared part of a slab resource. Thread-safe. Functions that allocate throw what upstream throws, or
/// std::bad_alloc; after an exception the visible state is unchanged.
class Central {
 public:
  /// `live` must outlive the object.
  Central(std::pmr::memory_resource* upstream, const LiveBytes& live) : live_(live), heap_(upstream) {}

  /// Takes at least one and at most a batch of free blocks of a small class. Returns how many. `out` has room for a
  /// batch.
  std::size_t take_batch(int size_class, std::span<std::byte*> out);
  /// Takes back at most a batch of blocks of a small class.
  void give_batch(int size_class, std::span<std::byte* const> blocks) noexcept;
  std::byte* take_small(int size_class);

  /// Returns a block of whole pages.
  std::byte* take_large(std::size_t bytes);
  void give_large(std::byte* block) noexcept;

  /// Gives all pages that hold only free blocks back to the system. Returns their bytes.
  std::size_t trim() noexcept;

  /// Returns the block that begins at `address`. Any address is allowed.
  Located locate(const void* address) noexcept;

  /// Returns the number of blocks of a small class, free ones included.
  std::size_t blocks(int size_class) const noexcept {
    return classes_[static_cast<std::size_t>(size_class)].blocks.load(std::memory_order_relaxed);
  }
  const PageHeap& heap() const noexcept { return heap_; }
  std::mutex& heap_lock() noexcept { return mutex_; }  ///< for fork()

 private:
  struct SmallBlock {
    std::byte* begin;     // written before the index is first put into a list
    std::uint32_t chain;  // the next block of the same batch; only the holder of the batch accesses it
    std::atomic<std::uint8_t> guard;
  };
  using SmallBlocks = BlockTable<StdAtomics, SmallBlock>;

  /// A small size class. Its free list holds batches; the index of a batch is the index of its first block.
  struct SizeClass {
    FreeList<StdAtomics> free;
    std::atomic<std::size_t> blocks{0};
    std::unique_ptr<SmallBlocks> table;           // null until the class is first used
    std::vector<std::uint32_t> slabs;             // the span of each slab, or `none`
    std::vector<std::uint32_t> numbers_to_reuse;  // indices into `slabs`
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
  std::mutex mutex_;  // guards the heap, and all members of the classes except atomics and table entries
  PageHeap heap_;
  std::size_t slab_bytes_ = 0;  // of all present slabs
};

}  // namespace convolume::allocator
