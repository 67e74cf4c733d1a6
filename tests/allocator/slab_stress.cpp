// Tests with many threads at once, with threads and resources that end in any order, and with failing allocations at
// every step.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "testing/sanitizers.hpp"
#include "testing/upstream.hpp"
#include <catch2/catch.hpp>

#include "convolume/error.hpp"
#include "convolume/memory.hpp"
#include "core/random.hpp"

using namespace convolume;

namespace {

#if !CONVOLUME_ADDRESS_SANITIZER && !CONVOLUME_THREAD_SANITIZER  // sanitizers have their own operator new

/// How many calls of operator new by this thread succeed from now on. If negative, all do.
thread_local constinit long heap_calls_left = -1;

/// Live blocks of operator new.
std::atomic<long> heap_blocks{0};

void* from_heap(std::size_t bytes) {
  if (heap_calls_left == 0) throw std::bad_alloc();
  if (heap_calls_left > 0) --heap_calls_left;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  ++heap_blocks;
  return memory;
}

void to_heap(void* memory) {
  heap_blocks -= memory == nullptr ? 0 : 1;
  std::free(memory);
}

#endif

}  // namespace

#if !CONVOLUME_ADDRESS_SANITIZER && !CONVOLUME_THREAD_SANITIZER
// Not inlined, because GCC would see free() of a pointer from operator new, and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return from_heap(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return from_heap(bytes); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { to_heap(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { to_heap(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { to_heap(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { to_heap(memory); }
#endif

namespace {

struct Block {
  unsigned char* data;
  std::size_t bytes;
  unsigned char pattern;
};

Block take(std::pmr::memory_resource& memory, std::size_t bytes, unsigned char pattern) {
  Block block{static_cast<unsigned char*>(memory.allocate(bytes, 64)), bytes, pattern};
  std::memset(block.data, pattern, bytes);
  return block;
}

/// Frees a block. Returns 0 if its contents are as written, otherwise the number of damaged bytes.
int give(std::pmr::memory_resource& memory, const Block& block) {
  int damaged = 0;
  for (std::size_t b = 0; b < block.bytes; ++b) damaged += block.data[b] == block.pattern ? 0 : 1;
  memory.deallocate(block.data, block.bytes, 64);
  return damaged;
}

/// Returns mostly small sizes, some that take a slab of their own, and some large ones.
std::size_t random_bytes(const RandomKey& key, std::uint64_t i) {
  constexpr std::size_t limits[] = {200, 200, 3000, 3000, 40000, 300000};
  return 1 + uniform_below(key, 2 * i, limits[uniform_below(key, 2 * i + 1, 6)]);
}

/// Lets threads allocate and free blocks of a shared pool. Each thread lives for one round, which is as long as a few
/// magazines.
void free_across_threads(SlabOptions options, int threads, int rounds, int steps) {
  SlabResource slab(options);
  std::vector<Block> shared;
  std::mutex mutex;
  std::atomic<int> damaged{0};
  const auto work = [&](int t, int round) {
    const RandomKey key{.seed = 9, .a = static_cast<std::uint32_t>(t), .b = static_cast<std::uint32_t>(round)};
    for (int i = 0; i < steps; ++i) {
      const auto step = static_cast<std::uint64_t>(i);
      Block block = take(slab, random_bytes(key, 2 * step), static_cast<unsigned char>(i + t));
      {
        const std::lock_guard lock(mutex);
        shared.push_back(block);
        if (shared.size() < 64) continue;
        std::swap(shared[uniform_below(key, 4 * step + 2, shared.size())], shared.back());
        block = shared.back();
        shared.pop_back();
      }
      damaged += give(slab, block);
    }
    if (t == 0) slab.trim();
    if (t == 1) damaged += slab.statistics().classes.empty() ? 1 : 0;
  };
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      for (int round = 0; round < rounds; ++round) work(t, round);
    });
  }
  for (auto& worker : workers) worker.join();
  for (const auto& block : shared) damaged += give(slab, block);
  CHECK(damaged == 0);
  CHECK(slab.statistics().live_bytes == 0);
}

#if CONVOLUME_THREAD_SANITIZER
constexpr int many_threads = 8, many_rounds = 25;
#else
constexpr int many_threads = 32, many_rounds = 50;
#endif

}  // namespace

TEST_CASE("many threads free what others allocated, and no block is ever handed out twice") {
  free_across_threads({}, many_threads, many_rounds, 30);
}

TEST_CASE("many threads on a hardened resource with a budget") {
  free_across_threads({.upstream = mmap_resource(), .budget = 1_GiB, .hardened = true}, 4, 10, 50);
}

TEST_CASE("32 threads free what others allocated for long", "[.long]") {
  free_across_threads({}, 32, 500, 100);
  free_across_threads({.upstream = mmap_resource(), .budget = 1_GiB, .hardened = true}, 32, 50, 100);
}

TEST_CASE("threads end while others free what they allocated") {
  SlabResource slab;
  std::vector<Block> left;
  for (int t = 0; t < 50; ++t) {
    std::vector<Block> made;
    std::thread maker([&] {
      for (int i = 0; i < 300; ++i) {
        made.push_back(take(slab, random_bytes({.seed = 5}, static_cast<std::uint64_t>(300 * t + i)), 7));
      }
    });
    int damaged = 0;
    for (const Block& block : left) damaged += give(slab, block);
    maker.join();
    CHECK(damaged == 0);
    left = std::move(made);
  }
  for (const Block& block : left) slab.deallocate(block.data, block.bytes, 64);
  const SlabStatistics after = slab.statistics();
  CHECK(after.live_bytes == 0);
  CHECK(after.allocations == 50 * 300);
  for (const auto& c : after.classes) CHECK(c.cached == c.blocks);
}

TEST_CASE("blocks in the magazines of a thread that ended are used again") {
  SlabResource slab;
  const auto use = [&] {
    std::vector<void*> blocks;
    for (int i = 0; i < 2000; ++i) blocks.push_back(slab.allocate(4096, 64));
    for (void* block : blocks) slab.deallocate(block, 4096, 64);
  };
  std::thread(use).join();
  const auto blocks = slab.statistics().classes.at(0).blocks;
  for (int i = 0; i < 20; ++i) std::thread(use).join();
  CHECK(slab.statistics().classes.at(0).blocks == blocks);
}

TEST_CASE("a resource ends before the threads that used it, and others take its place") {
  std::atomic<int> round{0}, done{0};
  auto slab = std::make_unique<SlabResource>();
  constexpr int threads = 4, rounds = 40;
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      for (int r = 1; r <= rounds; ++r) {
        while (round.load() < r) std::this_thread::yield();
        for (int i = 0; i < 100; ++i) slab->deallocate(slab->allocate(100 + 50 * t, 64), 100 + 50 * t, 64);
        ++done;
      }
    });
  }
  for (int r = 1; r <= rounds; ++r) {
    round = r;
    while (done.load() < threads * r) std::this_thread::yield();
    CHECK(slab->statistics().allocations == 100 * threads);
    slab = std::make_unique<SlabResource>();
  }
  for (auto& worker : workers) worker.join();
}

namespace {

/// Frees memory when its thread ends. The thread's own caches may be gone by then or not; the test below covers both
/// orders.
struct FreesAtExit {
  SlabResource* slab = nullptr;
  void* block = nullptr;
  ~FreesAtExit() {
    if (slab == nullptr) return;
    slab->deallocate(block, 500, 64);
    slab->deallocate(slab->allocate(300, 64), 300, 64);
  }
};
thread_local FreesAtExit frees_at_exit;

}  // namespace

TEST_CASE("destructors of thread-local objects may free and allocate") {
  SlabResource slab;
  for (const bool cache_first : {false, true}) {
    std::thread([&] {
      if (cache_first) slab.deallocate(slab.allocate(500, 64), 500, 64);
      frees_at_exit.slab = &slab;
      frees_at_exit.block = slab.allocate(500, 64);
    }).join();
    CHECK(slab.statistics().live_bytes == 0);
  }
  CHECK(slab.statistics().allocations == 5);
}

namespace {

/// Allocates, grows, frees half, grows again, and skips every request that is rejected. Returns the number of
/// rejections.
int exercise(SlabResource& slab) {
  std::vector<Block> blocks;
  blocks.reserve(1000);
  int refused = 0;
  for (std::uint64_t i = 0; i < 600; ++i) {
    const std::size_t bytes = i % 100 == 99 ? 5_MiB : random_bytes({.seed = 3}, i);
    try {
      blocks.push_back({static_cast<unsigned char*>(slab.allocate(bytes, 64)), bytes, static_cast<unsigned char>(i)});
      blocks.back().data[0] = blocks.back().data[bytes - 1] = blocks.back().pattern;
    } catch (const std::bad_alloc&) {
      ++refused;
    }
    if (i % 3 == 2 && !blocks.empty()) {
      slab.deallocate(blocks.back().data, blocks.back().bytes, 64);
      blocks.pop_back();
    }
  }
  std::size_t held = 0;
  for (const Block& block : blocks) {
    held += block.bytes;
    if (block.data[0] != block.pattern || block.data[block.bytes - 1] != block.pattern) refused = 1 << 20;
  }
  if (slab.statistics().live_bytes < held) refused = 1 << 20;
  for (const Block& block : blocks) slab.deallocate(block.data, block.bytes, 64);
  return refused;
}

}  // namespace

TEST_CASE("upstream refuses at every call: nothing leaks, and the resource works afterwards") {
  long calls = 0;
  {
    Upstream upstream;
    upstream.refuse_above(6_MiB);  // forces many small chunks
    SlabResource slab({.upstream = &upstream});
    REQUIRE(exercise(slab) == 0);
    calls = upstream.served();
  }
  REQUIRE(calls > 3);
  for (const std::size_t budget : {std::size_t{0}, 1_GiB}) {
    for (long k = 0; k < calls; ++k) {
      CAPTURE(k, budget);
      Upstream upstream;
      upstream.refuse_above(6_MiB);
      upstream.refuse_after(k);
      SlabResource slab({.upstream = &upstream, .budget = budget});
      const int refused = exercise(slab);
      CHECK(refused > 0);
      CHECK(refused < 1 << 20);
      CHECK(slab.statistics().live_bytes == 0);
      upstream.refuse_after(-1);
      CHECK(exercise(slab) == 0);
      CHECK(slab.statistics().live_bytes == 0);
    }
  }
}

TEST_CASE("upstream that has less than a whole chunk is asked for what is needed") {
  Upstream upstream;
  upstream.refuse_above(2_MiB);
  SlabResource slab({.upstream = &upstream});
  void* block = slab.allocate(1_MiB, 64);
  CHECK_THROWS_AS(slab.allocate(3_MiB, 64), std::bad_alloc);
  CHECK(slab.statistics().upstream_bytes == 2_MiB);
  CHECK(slab.statistics().live_bytes == 1_MiB);
  CHECK(slab.statistics().peak_bytes == 1_MiB);
  slab.deallocate(block, 1_MiB, 64);
}

TEST_CASE("slabs that others free while upstream is asked are carved again, each once") {
  Upstream upstream;
  upstream.refuse_above(2_MiB);
  SlabResource slab({.upstream = &upstream, .hardened = false});
  constexpr std::size_t bytes = 32 << 10;
  constexpr std::size_t chunk = 128, freed = 16;
  std::vector<void*> first(chunk);
  for (void*& block : first) block = slab.allocate(bytes, 64);
  // Upstream rejects the next chunk. Meanwhile another thread frees two whole slabs of the requested size.
  upstream.refuse_next(2);
  upstream.meanwhile([&] {
    std::thread([&] {
      for (std::size_t i = 0; i < freed; ++i) slab.deallocate(first[i], bytes, 64);
    }).join();
  });
  std::set<void*> live(first.begin() + freed, first.end());
  std::vector<void*> others(64);
  for (void*& block : others) {
    block = slab.allocate(bytes, 64);
    REQUIRE(live.insert(block).second);
  }
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < freed; ++i) {
      live.erase(others[i]);
      slab.deallocate(others[i], bytes, 64);
    }
    for (std::size_t i = 0; i < freed; ++i) {
      others[i] = slab.allocate(bytes, 64);
      REQUIRE(live.insert(others[i]).second);
    }
  }
  for (void* block : live) slab.deallocate(block, bytes, 64);
}

#if !CONVOLUME_ADDRESS_SANITIZER && !CONVOLUME_THREAD_SANITIZER
namespace {

/// Allocates blocks of all sizes on a new thread, whose first call makes its caches. Returns whether operator new
/// failed at its call number k. Blocks that a failure leaves live are freed with the resource.
bool heap_refuses(SlabResource& slab, long k) {
  bool refused = false;
  std::thread([&] {
    heap_calls_left = k;
    try {
      for (std::size_t bytes = 64; bytes < 40_MiB; bytes = bytes * 3 / 2) {
        void* blocks[4] = {};
        for (void*& block : blocks) block = slab.allocate(bytes, 64);
        for (void* block : blocks) slab.deallocate(block, bytes, 64);
      }
    } catch (const std::bad_alloc&) {
      refused = true;
    }
    heap_calls_left = -1;
  }).join();
  return refused;
}

}  // namespace

TEST_CASE("the heap refuses at every call: nothing leaks, and the resource works afterwards") {
  int refusals = 0;
  for (long k = 0; k < 400; ++k) {
    CAPTURE(k);
    const long before = heap_blocks;
    bool refused = false, works = false;
    {
      Upstream upstream;
      SlabResource slab({.upstream = &upstream});
      refused = heap_refuses(slab, k);
      works = exercise(slab) == 0;
    }
    refusals += refused ? 1 : 0;
    // One block may remain: this thread's cache, which it keeps until it needs a cache for another resource.
    CHECK(heap_blocks <= before + 1);
    CHECK(works);
    if (!refused) break;
  }
  CHECK(refusals > 30);
  CHECK(refusals < 400);
}
#endif
