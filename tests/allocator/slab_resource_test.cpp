#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "allocator/size_classes.hpp"
#include "convolume/error.hpp"
#include "convolume/memory.hpp"
#include "core/random.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

using namespace convolume;

TEST_CASE("a class holds its request and wastes at most an eighth above 1 KiB") {
  for (std::size_t bytes = 1; bytes < (std::size_t{3} << 20); bytes += bytes < 5000 ? 1 : 997) {
    const std::size_t block = allocator::block_bytes(allocator::class_of(bytes));
    REQUIRE(block >= bytes);
    REQUIRE(block % allocator::alignment == 0);
    if (bytes > 1024) REQUIRE(static_cast<double>(block) <= 1.125 * static_cast<double>(bytes));
    const int index = allocator::class_of(bytes);
    if (index > 0) REQUIRE(allocator::block_bytes(index - 1) < bytes);
  }
  CHECK(allocator::class_of(allocator::largest_block) == allocator::class_count - 1);
}

TEST_CASE("blocks are aligned, distinct, reused, and counted") {
  SlabResource slab;
  std::vector<std::pair<void*, std::size_t>> blocks;
  for (const std::size_t bytes : {0ul, 1ul, 63ul, 64ul, 65ul, 1000ul, 5000ul, 70000ul, 3000000ul, 20000000ul}) {
    for (int i = 0; i < 5; ++i) {
      void* block = slab.allocate(bytes, 64);
      CHECK(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
      std::memset(block, static_cast<int>(blocks.size()), bytes);
      blocks.emplace_back(block, bytes);
    }
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto* bytes = static_cast<const unsigned char*>(blocks[i].first);
    for (std::size_t b = 0; b < blocks[i].second; b += 61) REQUIRE(bytes[b] == static_cast<unsigned char>(i));
  }
  const auto full = slab.statistics();
  CHECK(full.live_bytes >= 5u * 23076193);
  for (const auto& [block, bytes] : blocks) slab.deallocate(block, bytes, 64);
  CHECK(slab.statistics().live_bytes == 0);
  CHECK(slab.statistics().peak_bytes == full.live_bytes);
  for (auto& [block, bytes] : blocks) block = slab.allocate(bytes, 64);
  CHECK(slab.statistics().upstream_calls == full.upstream_calls);
  for (const auto& [block, bytes] : blocks) slab.deallocate(block, bytes, 64);
}

TEST_CASE("page alignment is served and more is refused") {
  SlabResource slab;
  void* block = slab.allocate(100, 4096);
  CHECK(reinterpret_cast<std::uintptr_t>(block) % 4096 == 0);
  slab.deallocate(block, 100, 4096);
  CHECK_THROWS_AS(slab.allocate(100, 8192), InvalidArgument);
  CHECK_THROWS_AS(slab.allocate(std::size_t{1} << 60, 64), std::bad_alloc);
}

TEST_CASE("a budget refuses with what was asked, held and allowed, and keeps working") {
  SlabResource slab({.upstream = mmap_resource(), .budget = 10000});
  void* block = slab.allocate(8192, 64);
  try {
    static_cast<void>(slab.allocate(4096, 64));
    FAIL("the budget was not enforced");
  } catch (const MemoryBudgetExceeded& error) {
    CHECK(error.asked() == 4096);
    CHECK(error.held() == 8192);
    CHECK(error.allowed() == 10000);
  }
  slab.deallocate(block, 8192, 64);
  block = slab.allocate(9216, 64);
  slab.deallocate(block, 9216, 64);
}

TEST_CASE("an upstream that fails leaves the resource as it was") {
  struct Failing : std::pmr::memory_resource {
    int left = 1;
    void* do_allocate(std::size_t bytes, std::size_t alignment) override {
      if (left-- <= 0) throw std::bad_alloc();
      return mmap_resource()->allocate(bytes, alignment);
    }
    void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
      mmap_resource()->deallocate(p, bytes, alignment);
    }
    bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
  } upstream;
  SlabResource slab({.upstream = &upstream});
  void* block = slab.allocate(100000, 64);
  CHECK_THROWS_AS(slab.allocate(100000, 64), std::bad_alloc);
  CHECK(slab.statistics().live_bytes ==
        slab.statistics().peak_bytes - allocator::block_bytes(allocator::class_of(100000)));
  slab.deallocate(block, 100000, 64);
  block = slab.allocate(100000, 64);
  slab.deallocate(block, 100000, 64);
}

namespace {

void free_across_threads(int threads, int rounds) {
  SlabResource slab;
  struct Block {
    unsigned char* data;
    std::size_t bytes;
    unsigned char pattern;
  };
  std::vector<Block> shared;
  std::mutex mutex;
  std::atomic<int> damaged{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      const RandomKey key{.seed = 9, .a = static_cast<std::uint32_t>(t)};
      for (int i = 0; i < rounds; ++i) {
        const std::size_t bytes = 1 + uniform_below(key, static_cast<std::uint64_t>(2 * i), 3000);
        Block block{static_cast<unsigned char*>(slab.allocate(bytes, 64)), bytes, static_cast<unsigned char>(i + t)};
        std::memset(block.data, block.pattern, bytes);
        {
          const std::lock_guard lock(mutex);
          shared.push_back(block);
          if (shared.size() < 64) continue;
          std::swap(shared[uniform_below(key, static_cast<std::uint64_t>(2 * i + 1), shared.size())], shared.back());
          block = shared.back();
          shared.pop_back();
        }
        for (std::size_t b = 0; b < block.bytes; ++b) damaged += block.data[b] == block.pattern ? 0 : 1;
        slab.deallocate(block.data, block.bytes, 64);
      }
    });
  }
  for (auto& worker : workers) worker.join();
  for (const auto& block : shared) slab.deallocate(block.data, block.bytes, 64);
  CHECK(damaged == 0);
  CHECK(slab.statistics().live_bytes == 0);
}

}  // namespace

TEST_CASE("threads free what others allocated, and no block is ever handed out twice") { free_across_threads(4, 2000); }

TEST_CASE("32 threads free what others allocated", "[.long]") { free_across_threads(32, 20000); }

#if defined(__SANITIZE_ADDRESS__)
TEST_CASE("a freed block is poisoned under AddressSanitizer") {
  SlabResource slab;
  void* block = slab.allocate(256, 64);
  CHECK_FALSE(__asan_address_is_poisoned(block));
  slab.deallocate(block, 256, 64);
  CHECK(__asan_address_is_poisoned(block));
}
#endif
