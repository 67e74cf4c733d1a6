// Memory for tensors, spectra and scratch: a size-stratified lock-free slab allocator (Feinberg 2015, "Transpose
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

/// Returns an upstream resource that maps whole pages from the operating system. Thread-safe. Throws std::bad_alloc if
/// the system refuses.
CONVOLUME_API std::pmr::memory_resource* mmap_resource() noexcept;

/// Receives a one-line message about a wrong use of memory. It must not use the resource. If it returns, the block in
/// question is never reused, or is handed out as if nothing had happened.
using MemoryFaultHandler = void (*)(const char* message) noexcept;

/// The default handler. Writes the message to standard error and aborts.
[[noreturn]] CONVOLUME_API void abort_on_memory_fault(const char* message) noexcept;

/// Options of a slab resource.
struct SlabOptions {
  /// Resource that provides the memory, in multiples of 2 MiB that are aligned to 2 MiB. Must outlive the slab
  /// resource. Must not use another slab resource, because fork() takes the locks of all of them.
  std::pmr::memory_resource* upstream = mmap_resource();
  /// Limit in bytes for all live blocks together; 0 means no limit. Blocks count with their rounded size: up to 32 KiB
  /// the size of their class, above that whole pages of 4 KiB.
  std::size_t budget = 0;
  /// Detects writes behind the end of a block, writes to freed blocks, and blocks that are freed twice, with a wrong
  /// size, or to the wrong resource. If absent, the environment variable CONVOLUME_HARDENED_MEMORY=1 switches it on at
  /// construction.
  std::optional<bool> hardened = std::nullopt;
  /// Handler for what a hardened resource detects; null means abort_on_memory_fault(). It is no exception, because
  /// deallocate() must not throw.
  MemoryFaultHandler on_fault = nullptr;
};

/// Blocks of one size class.
struct SlabClassStatistics {
  std::size_t block_bytes = 0;  ///< size of a block; for a class above 32 KiB, of its largest block
  std::size_t blocks = 0;       ///< existing blocks, live or cached
  std::size_t live = 0;         ///< blocks that are handed out now
  std::size_t cached = 0;       ///< free blocks in the lists and in the threads' magazines; 0 above 32 KiB
};

/// Statistics of a slab resource. They are exact while no thread allocates or frees.
struct SlabStatistics {
  std::size_t live_bytes = 0;  ///< bytes of blocks that are handed out now, rounded up as for the budget
  /// Largest value of live_bytes so far. Exact with a budget. Without one, up to 64 KiB per thread may be missing,
  /// unless statistics() was called at the peak.
  std::size_t peak_bytes = 0;
  std::size_t cached_bytes = 0;  ///< bytes of free blocks that are kept for their class
  /// Bytes of pages that have ever been handed out. They hold live blocks, cached blocks, and free pages in between
  /// that trim() may have returned to the system. With huge pages the process may hold a few MiB more.
  std::size_t used_bytes = 0;
  std::size_t upstream_bytes = 0;    ///< bytes held from upstream, used or not
  std::uint64_t allocations = 0;     ///< calls of allocate() so far
  std::uint64_t upstream_calls = 0;  ///< calls of upstream's allocate() so far
  std::vector<SlabClassStatistics> classes;
};

/// A memory resource with size classes up to 32 KiB and whole pages above. From 1 KiB on, a block is at most 12.5 %
/// larger than the request. Blocks are aligned to 64 bytes. Each thread keeps magazines of free blocks of each class.
/// Behind the magazines are lock-free free lists, and behind these a heap of pages. Larger blocks come directly from
/// the heap, which merges free neighbours.
///
/// Thread-safe: any thread may free what another thread allocated, and threads may end before or after the resource.
/// ASan reports the use of a freed block. Memory returns to upstream only at destruction; every block must be freed by
/// then. A child of fork() may use the resource; blocks in the magazines of the parent's other threads are lost to it.
/// The search for a large block is slow only if thousands of free page runs have about its size.
///
/// Throws MemoryBudgetExceeded, std::bad_alloc, InvalidArgument for an alignment above 4096, and the exceptions of
/// upstream. An exception leaves the resource unchanged.
class CONVOLUME_API SlabResource final : public std::pmr::memory_resource {
 public:
  /// Throws InvalidArgument if upstream is null or CONVOLUME_HARDENED_MEMORY is neither 0 nor 1.
  explicit SlabResource(SlabOptions options = {});
  ~SlabResource() override;
  SlabResource(const SlabResource&) = delete;
  SlabResource& operator=(const SlabResource&) = delete;

  /// Returns the current statistics. Thread-safe.
  SlabStatistics statistics() const;

  /// Returns pages without live blocks to the system, and keeps their addresses. Returns the bytes of these pages.
  /// Blocks in the magazines of other threads stay (at most 64 KiB per class of up to 32 KiB). Returns 0 if upstream is
  /// not mmap_resource(); then memory is returned only at destruction. Thread-safe. Takes a lock, and time proportional
  /// to the number of free blocks.
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
