// Where tensors, spectra and scratch live: a size-stratified lock-free slab allocator (Feinberg 2015, "Transpose
// Algorithm": "ZNN has a size-stratified lockfree slab allocator").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <vector>

#include "convolume/version.hpp"

namespace convolume {

/// Upstream that maps whole pages from the system. Thread-safe. Throws std::bad_alloc where the system refuses.
CONVOLUME_API std::pmr::memory_resource* mmap_resource() noexcept;

/// Told of a mistake in the use of memory, in one line. Whatever it does, it must not use the resource; where it
/// returns, the block in question is never used again, or handed out as if nothing had been.
using MemoryFaultHandler = void (*)(const char* message) noexcept;

/// The handler where none is named: writes the message to the standard error and aborts.
[[noreturn]] CONVOLUME_API void abort_on_memory_fault(const char* message) noexcept;

struct SlabOptions {
  /// Source of chunks: multiples of 2 MiB, aligned to 2 MiB. Must outlive the resource.
  std::pmr::memory_resource* upstream = mmap_resource();
  /// Most bytes that live blocks may hold together, each rounded up: up to 32 KiB to its class, above to whole pages of
  /// 4 KiB; 0 means no limit.
  std::size_t budget = 0;
  /// Finds writes behind a block's end and to freed blocks, blocks freed twice, with another size, or to a resource
  /// that they are not from. Without a value the environment decides, at construction: CONVOLUME_HARDENED_MEMORY=1.
  std::optional<bool> hardened = std::nullopt;
  /// Called by a hardened resource; null is abort_on_memory_fault(). deallocate() must not throw, hence no exception.
  MemoryFaultHandler on_fault = nullptr;
};

struct SlabClassStatistics {
  std::size_t block_bytes = 0;  ///< size of a block of this class; above 32 KiB the largest one that counts to it
  std::size_t blocks = 0;       ///< blocks of this class that there are now, handed out or not
  std::size_t live = 0;         ///< blocks handed out now
  std::size_t cached = 0;       ///< free blocks, in the lists and in threads' magazines; none above 32 KiB
};

/// Exact while no thread allocates or frees.
struct SlabStatistics {
  std::size_t live_bytes = 0;  ///< bytes of blocks handed out now, rounded up as budgets count them
  /// Largest value of live_bytes so far: with a budget exactly; without one each thread may have had 64 KiB more,
  /// unless statistics() was called at the peak.
  std::size_t peak_bytes = 0;
  std::size_t cached_bytes = 0;  ///< bytes of free blocks that are kept for their class
  /// Bytes of pages that were ever handed out: what live and cached blocks lie in, and free pages between them, which
  /// trim() may have given back to the system. With huge pages the machine may hold a few MiB more.
  std::size_t used_bytes = 0;
  std::size_t upstream_bytes = 0;    ///< bytes held from upstream, used or not
  std::uint64_t allocations = 0;     ///< calls of allocate so far
  std::uint64_t upstream_calls = 0;  ///< calls of upstream's allocate so far
  std::vector<SlabClassStatistics> classes;
};

/// Size classes up to 32 KiB and whole pages above (at most 12.5 % more than the request from 1 KiB on), 64-byte
/// alignment, magazines of free blocks of each class for each thread, lock-free free lists behind them, and behind
/// these a heap of pages, which larger blocks come from directly and are joined in with their free neighbours.
///
/// Thread-safe: any thread may free what another allocated, and may end before the resource does or after. A freed
/// block is poisoned under ASan. Memory goes back to upstream at destruction only; every block must be freed by then.
/// A process that forks while other threads allocate must not use the resource in the child: a lock may be held there.
/// Taking a large block looks through the free runs of its size, which is long only where thousands of them are free.
/// Throws MemoryBudgetExceeded, std::bad_alloc, InvalidArgument for an alignment above 4096, and what upstream throws;
/// after an exception the resource is as it was.
class CONVOLUME_API SlabResource final : public std::pmr::memory_resource {
 public:
  /// Throws InvalidArgument where upstream is null or CONVOLUME_HARDENED_MEMORY is neither 0 nor 1.
  explicit SlabResource(SlabOptions options = {});
  ~SlabResource() override;
  SlabResource(const SlabResource&) = delete;
  SlabResource& operator=(const SlabResource&) = delete;

  /// Thread-safe.
  SlabStatistics statistics() const;

  /// Gives the pages that no live block lies in back to the system and returns how many bytes they are; address ranges
  /// stay. What other threads keep in their magazines stays as well (at most 64 KiB per class of up to 32 KiB). Returns
  /// 0 where upstream is not mmap_resource(): its chunks go back at destruction. Thread-safe; takes a lock and time in
  /// proportion to the free blocks.
  std::size_t trim();

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

inline namespace literals {
constexpr std::size_t operator""_MiB(unsigned long long n) { return static_cast<std::size_t>(n) << 20; }
constexpr std::size_t operator""_GiB(unsigned long long n) { return static_cast<std::size_t>(n) << 30; }
}  // namespace literals

}  // namespace convolume
