#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "testing/sanitizers.hpp"
#include "testing/upstream.hpp"
#include <catch2/catch.hpp>
#include <sys/mman.h>

#include "allocator/size_classes.hpp"
#include "convolume/error.hpp"
#include "convolume/memory.hpp"
#include "core/random.hpp"

#if CONVOLUME_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

using namespace convolume;

TEST_CASE("a block holds its request and wastes at most an eighth above 1 KiB") {
  for (std::size_t bytes = 1; bytes < (std::size_t{3} << 20); bytes += bytes < 5000 ? 1 : 97) {
    const std::size_t block = allocator::fit_of(bytes, 64).bytes;
    REQUIRE(block >= bytes);
    REQUIRE(block % allocator::alignment == 0);
    if (bytes > 1024) REQUIRE(static_cast<double>(block) <= 1.125 * static_cast<double>(bytes));
    if (bytes > 40'000) REQUIRE(block < bytes + allocator::page);
    const int index = allocator::class_of(bytes);
    REQUIRE(allocator::block_bytes(index) >= bytes);
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
  for (const std::size_t alignment : {128ul, 256ul, 512ul, 1024ul, 2048ul, 4096ul}) {
    for (const std::size_t bytes : {1ul, 129ul, 1025ul, 4097ul, 33000ul, 300000ul}) {
      std::vector<void*> blocks;
      for (int i = 0; i < 20; ++i) blocks.push_back(slab.allocate(bytes, alignment));
      for (void* one : blocks) {
        REQUIRE(reinterpret_cast<std::uintptr_t>(one) % alignment == 0);
        slab.deallocate(one, bytes, alignment);
      }
    }
  }
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

TEST_CASE("a budget is exact while threads cache blocks") {
  constexpr int threads = 4;
  SlabResource slab({.upstream = mmap_resource(), .budget = 100 * 1024});
  std::atomic<int> held{0}, refused{0}, too_many{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        std::vector<void*> mine;
        try {
          for (int k = 0; k < 40; ++k) {
            mine.push_back(slab.allocate(1024, 64));
            too_many += ++held > 100 ? 1 : 0;
          }
        } catch (const MemoryBudgetExceeded& error) {
          ++refused;
          // Other threads may free memory meanwhile, but when the request was rejected there was no room.
          too_many += error.held() + error.asked() > error.allowed() ? 0 : 1;
        }
        for (void* block : mine) {
          --held;
          slab.deallocate(block, 1024, 64);
        }
      }
    });
  }
  for (auto& worker : workers) worker.join();
  CHECK(too_many == 0);
  CHECK(slab.statistics().live_bytes == 0);
  CHECK(slab.statistics().peak_bytes <= 100 * 1024);
  // Magazines must not keep any part of the budget.
  std::vector<void*> all;
  for (int i = 0; i < 100; ++i) all.push_back(slab.allocate(1024, 64));
  CHECK_THROWS_AS(slab.allocate(1, 64), MemoryBudgetExceeded);
  for (void* block : all) slab.deallocate(block, 1024, 64);
}

TEST_CASE("statistics count every class") {
  SlabResource slab;
  std::vector<void*> small, large;
  for (int i = 0; i < 100; ++i) small.push_back(slab.allocate(100, 64));
  for (int i = 0; i < 3; ++i) large.push_back(slab.allocate(100000, 64));
  for (int i = 0; i < 40; ++i) {
    slab.deallocate(small.back(), 100, 64);
    small.pop_back();
  }
  slab.deallocate(large.back(), 100000, 64);
  large.pop_back();
  const SlabStatistics s = slab.statistics();
  REQUIRE(s.classes.size() == 2);
  CHECK(s.classes[0].block_bytes == 128);
  CHECK(s.classes[0].live == 60);
  CHECK(s.classes[0].live + s.classes[0].cached == s.classes[0].blocks);
  CHECK(s.classes[1].block_bytes == 106496);
  CHECK(s.classes[1].blocks == 2);
  CHECK(s.classes[1].live == 2);
  CHECK(s.classes[1].cached == 0);
  CHECK(s.live_bytes == 60 * 128 + 2 * 102400);
  CHECK(s.peak_bytes >= 3 * 102400);
  CHECK(s.cached_bytes == s.classes[0].cached * 128);
  CHECK(s.used_bytes >= s.live_bytes + s.cached_bytes + 102400);
  CHECK(s.used_bytes <= s.live_bytes + s.cached_bytes + 102400 + 4096);  // the unused rest behind the last block of a
                                                                         // slab
  CHECK(s.allocations == 103);
  for (void* block : small) slab.deallocate(block, 100, 64);
  for (void* block : large) slab.deallocate(block, 100000, 64);
}

namespace {

/// Returns how many pages of [begin, begin + bytes) are resident in memory.
std::size_t resident_pages(void* begin, std::size_t bytes) {
  std::vector<unsigned char> pages(bytes / 4096);
  REQUIRE(mincore(begin, bytes, pages.data()) == 0);
  return static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; }));
}

}  // namespace

TEST_CASE("trim gives pages back and keeps the addresses usable") {
  SlabResource slab;
  constexpr std::size_t bytes = 24_MiB;
  void* block = slab.allocate(bytes, 64);
  void* neighbour = slab.allocate(70000, 64);
  std::vector<void*> small;
  for (int i = 0; i < 3000; ++i) small.push_back(slab.allocate(1000, 64));
  std::memset(block, 1, bytes);
  std::memset(neighbour, 2, 70000);
  CHECK(resident_pages(block, bytes) == bytes / 4096);
  slab.deallocate(block, bytes, 64);
  for (std::size_t i = 1; i < small.size(); ++i) slab.deallocate(small[i], 1000, 64);
  const auto before = slab.statistics();
  CHECK(slab.trim() >= bytes + 2900 * 1024);
  CHECK(resident_pages(block, bytes) == 0);
  const auto after = slab.statistics();
  CHECK(after.live_bytes == before.live_bytes);
  CHECK(after.upstream_bytes == before.upstream_bytes);
  CHECK(after.cached_bytes < 64 * 1024);  // blocks of the slab that holds small[0]
  for (int i = 0; i < 70000; i += 61) REQUIRE(static_cast<unsigned char*>(neighbour)[i] == 2);
  block = slab.allocate(bytes, 64);
  std::memset(block, 3, bytes);
  CHECK(slab.statistics().upstream_calls == before.upstream_calls);
  slab.deallocate(block, bytes, 64);
  slab.deallocate(neighbour, 70000, 64);
  slab.deallocate(small[0], 1000, 64);
}

TEST_CASE("what upstream refuses was never live") {
  Upstream upstream;
  upstream.refuse_above(64_MiB);
  SlabResource slab({.upstream = &upstream, .budget = 1_GiB});
  void* block = slab.allocate(1_MiB, 64);
  CHECK_THROWS_AS(slab.allocate(512_MiB, 64), std::bad_alloc);
  CHECK(slab.statistics().peak_bytes == 1_MiB);
  slab.deallocate(block, 1_MiB, 64);
}

TEST_CASE("large blocks are joined with their free neighbours at once") {
  SlabResource slab;
  const auto use = [&](std::size_t bytes) {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < 48_MiB / bytes; ++i) blocks.push_back(slab.allocate(bytes, 64));
    for (std::size_t i = 0; i < blocks.size(); i += 2) slab.deallocate(blocks[i], bytes, 64);
    for (std::size_t i = 1; i < blocks.size(); i += 2) slab.deallocate(blocks[i], bytes, 64);
    return slab.statistics().used_bytes;
  };
  const std::size_t used = use(1_MiB);
  CHECK(used == 48_MiB);
  for (const std::size_t bytes : {2_MiB, 3_MiB, 48_MiB, 64_MiB / 1024, 1_MiB}) CHECK(use(bytes) == used);
}

TEST_CASE("slabs lie apart from large blocks unless upstream has no more memory") {
  Upstream upstream;
  upstream.refuse_above(4_MiB);
  SlabResource slab({.upstream = &upstream, .hardened = false});
  std::vector<std::pair<void*, std::size_t>> blocks;
  const auto take = [&](std::size_t bytes) {
    blocks.emplace_back(slab.allocate(bytes, 64), bytes);
    return static_cast<std::byte*>(blocks.back().first);
  };
  std::byte* first = take(100 << 10);
  take(1000);
  CHECK(take(100 << 10) == first + (100 << 10));
  upstream.refuse_after(0);
  take(30'000);  // in the chunk of the slabs themselves
  for (int i = 0; i < 80; ++i) take(30'000);
  CHECK(slab.statistics().upstream_calls == 2);
  for (const auto& [block, bytes] : blocks) slab.deallocate(block, bytes, 64);
}

TEST_CASE("work that repeats itself uses the same pages again") {
  SlabResource slab;
  constexpr RandomKey key{.seed = 17};
  // Some blocks stay live, among them blocks of a first, larger round. Later rounds hold and replace blocks at random.
  std::vector<std::pair<void*, std::size_t>> stay;
  const auto round = [&](std::uint32_t kind, std::uint64_t steps) {
    std::vector<std::pair<void*, std::size_t>> held;
    for (std::uint64_t i = 0; i < steps; ++i) {
      const RandomKey step{.seed = key.seed, .a = kind};
      const auto bytes = 1'000 + static_cast<std::size_t>(uniform_below(step, 3 * i, i % 3 == 0 ? 3'000'000 : 300'000));
      held.emplace_back(slab.allocate(bytes, 64), bytes);
      std::swap(held[uniform_below(step, 3 * i + 1, held.size())], held.back());
      if (i % 4 == 0) continue;
      slab.deallocate(held.back().first, held.back().second, 64);
      held.pop_back();
    }
    if (kind == 0) std::swap(held, stay);
    for (const auto& [block, bytes] : held) slab.deallocate(block, bytes, 64);
    return slab.statistics().used_bytes;
  };
  round(0, 100);
  const std::size_t used = round(1, 300);
  for (int i = 0; i < 5; ++i) CHECK(round(1, 300) == used);
  for (const auto& [block, bytes] : stay) slab.deallocate(block, bytes, 64);
}

TEST_CASE("free blocks of other sizes are joined before many more pages are used") {
  SlabResource slab;
  const auto hold = [&](std::size_t bytes, std::size_t total) {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < total / bytes; ++i) blocks.push_back(slab.allocate(bytes, 64));
    for (void* block : blocks) slab.deallocate(block, bytes, 64);
  };
  hold(512_MiB, 512_MiB);
  for (const std::size_t bytes : {3'000'000ul, 50'000ul, 700'000ul, 5'000ul, 90'000'000ul}) hold(bytes, 460_MiB);
  CHECK(slab.statistics().used_bytes <= 512_MiB + 32_MiB);
}

TEST_CASE("free blocks of other sizes are joined where upstream has no more") {
  Upstream upstream;
  upstream.refuse_above(4_MiB);
  upstream.refuse_after(1);
  SlabResource slab({.upstream = &upstream});
  for (const std::size_t bytes : {4_MiB, 1_MiB, 100'000ul, 10'000ul, 4_MiB}) {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < (bytes < 1_MiB ? 3_MiB : 4_MiB) / bytes; ++i) {
      blocks.push_back(slab.allocate(bytes, 64));
    }
    CHECK_THROWS_AS(slab.allocate(4_MiB, 64), std::bad_alloc);
    for (void* block : blocks) slab.deallocate(block, bytes, 64);
    if (bytes < 32'000) slab.trim();  // blocks in magazines
  }
}

#if !CONVOLUME_ADDRESS_SANITIZER && !CONVOLUME_THREAD_SANITIZER
TEST_CASE("large slabs lie on huge pages where the system gives them") {
  std::string policy;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), policy);
  if (policy.empty() || policy.find("[never]") != std::string::npos) {
    std::puts("SKIPPED: huge pages: this system has none (/sys/kernel/mm/transparent_hugepage/enabled)");
    return;
  }
  SlabResource slab;
  void* block = slab.allocate(16_MiB, 64);
  std::memset(block, 1, 16_MiB);
  // The kernel sets the flag hg for an advised region whether or not a huge page is available.
  std::ifstream maps("/proc/self/smaps");
  bool inside = false, asked = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      const auto address = reinterpret_cast<std::uintptr_t>(block);
      inside = begin <= address && address < end;
    }
    if (inside && line.rfind("VmFlags:", 0) == 0) asked = line.find(" hg") != std::string::npos;
  }
  CHECK(asked);
  slab.deallocate(block, 16_MiB, 64);
}
#endif

#if CONVOLUME_ADDRESS_SANITIZER
TEST_CASE("a freed block is poisoned under AddressSanitizer") {
  SlabResource slab;
  void* block = slab.allocate(256, 64);
  CHECK_FALSE(__asan_address_is_poisoned(block));
  slab.deallocate(block, 256, 64);
  CHECK(__asan_address_is_poisoned(block));
}
#endif
