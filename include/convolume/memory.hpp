// Where tensors, spectra and scratch live: a size-stratified lock-free slab allocator (Feinberg 2015, "Transpose
// Algorithm": "ZNN has a size-stratified lockfree slab allocator").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <vector>

#include "convolume/version.hpp"

namespace convolume {

/// Upstream that maps whole pages from the system. Thread-safe. Throws std::bad_alloc where the system refuses.
CONVOLUME_API std::pmr::memory_resource* mmap_resource() noexcept;

struct SlabOptions {
  /// Source of slabs and of blocks above the largest class; must outlive the resource.
  std::pmr::memory_resource* upstream = mmap_resource();
  /// Most bytes that live blocks may hold together; 0 means no limit.
  std::size_t budget = 0;
};

struct SlabClassStatistics {
  std::size_t block_bytes = 0;  ///< size of a block of this class
  std::size_t blocks = 0;       ///< blocks carved so far
  std::size_t live = 0;         ///< blocks handed out now
};

struct SlabStatistics {
  std::size_t live_bytes = 0;        ///< bytes of blocks handed out now, rounded up to their class
  std::size_t peak_bytes = 0;        ///< largest value of live_bytes so far
  std::size_t upstream_bytes = 0;    ///< bytes held from upstream
  std::uint64_t allocations = 0;     ///< calls of allocate so far
  std::uint64_t upstream_calls = 0;  ///< calls of upstream's allocate so far
  std::vector<SlabClassStatistics> classes;
};

/// Size classes (at most 12.5 % above the request from 1 KiB on), 64-byte alignment, lock-free free lists.
///
/// Thread-safe: any thread may free what another allocated. A freed block is poisoned under ASan. Memory goes back to
/// upstream at destruction only; every block must be freed by then. Throws MemoryBudgetExceeded, std::bad_alloc, and
/// InvalidArgument for an alignment above 4096.
class CONVOLUME_API SlabResource final : public std::pmr::memory_resource {
 public:
  explicit SlabResource(SlabOptions options = {});
  ~SlabResource() override;
  SlabResource(const SlabResource&) = delete;
  SlabResource& operator=(const SlabResource&) = delete;

  SlabStatistics statistics() const;

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
