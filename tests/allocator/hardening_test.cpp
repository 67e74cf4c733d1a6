// Tests that deliberate mistakes in the use of memory are reported.
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "testing/sanitizers.hpp"
#include "testing/upstream.hpp"
#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "convolume/error.hpp"
#include "convolume/memory.hpp"

using namespace convolume;
using Catch::Matchers::Contains;

namespace {

std::vector<std::string> faults;
void remember(const char* message) noexcept { faults.emplace_back(message); }

SlabOptions remembering() {
  faults.clear();
  return {.hardened = true, .on_fault = remember};
}

/// The exit status of a child process, and its message.
struct End {
  int status = 0;
  std::string message;
};

template <class Body>
End end_of(const Body& body) {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // Catch's handler would print a report of its own.
    std::signal(SIGABRT, SIG_DFL);
    dup2(ends[1], STDERR_FILENO);
    body();
    _exit(0);
  }
  close(ends[1]);
  End end;
  std::array<char, 512> part{};
  for (ssize_t got; (got = read(ends[0], part.data(), part.size())) > 0;) {
    end.message.append(part.data(), static_cast<std::size_t>(got));
  }
  close(ends[0]);
  waitpid(child, &end.status, 0);
  return end;
}

template <class Body>
void check_dies(const Body& body, const char* why) {
  const End end = end_of([&] {
    SlabResource slab({.hardened = true});
    body(slab);
  });
  CHECK(WIFSIGNALED(end.status));
  CHECK(WTERMSIG(end.status) == SIGABRT);
  CHECK_THAT(end.message, Contains("SlabResource: the block of ") && Contains(why));
}

constexpr std::array<std::size_t, 6> some_bytes{1, 56, 64, 1000, 5000, 3'002'000};

}  // namespace

TEST_CASE("hardened: what is right is not reported") {
  SlabResource slab(remembering());
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> blocks;
    for (const std::size_t bytes : some_bytes) {
      for (const std::size_t alignment : {64ul, 4096ul}) {
        blocks.push_back(slab.allocate(bytes, alignment));
        std::memset(blocks.back(), 0xFF, bytes);
      }
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) slab.deallocate(blocks[i], some_bytes[i / 2], i % 2 ? 4096 : 64);
    if (round == 1) slab.trim();
  }
  CHECK(faults.empty());
  CHECK(slab.statistics().live_bytes == 0);
}

TEST_CASE("hardened: pages that were a large block and then small ones are not taken for written to") {
  Upstream upstream;
  upstream.refuse_above(2_MiB);
  upstream.refuse_after(1);
  SlabOptions options = remembering();
  options.upstream = &upstream;
  SlabResource slab(options);
  const auto use = [&](std::size_t bytes, std::size_t blocks) {
    std::vector<void*> held;
    for (std::size_t i = 0; i < blocks; ++i) {
      held.push_back(slab.allocate(bytes, 64));
      std::memset(held.back(), 1, bytes);
    }
    for (void* block : held) slab.deallocate(block, bytes, 64);
    slab.trim();  // blocks in magazines
  };
  for (const auto& [bytes, blocks] : {std::pair{1_MiB - 8, 2}, {20'000, 80}, {1_MiB - 8, 2}, {100'000, 15}}) {
    use(bytes, static_cast<std::size_t>(blocks));
  }
  CHECK(faults.empty());
  CHECK(slab.statistics().upstream_bytes == 2_MiB);
}

TEST_CASE("hardened: a block freed twice ends the program, with a message") {
  for (const std::size_t bytes : some_bytes) {
    CAPTURE(bytes);
    check_dies(
        [&](SlabResource& slab) {
          void* block = slab.allocate(bytes, 64);
          slab.deallocate(block, bytes, 64);
          slab.deallocate(block, bytes, 64);
        },
        "is freed a second time");
  }
}

TEST_CASE("hardened: a block that another thread freed already is reported once") {
  SlabResource slab(remembering());
  void* block = slab.allocate(100, 64);
  std::thread([&] { slab.deallocate(block, 100, 64); }).join();
  slab.deallocate(block, 100, 64);
  CHECK(faults.size() == 1);
  // The block is in one free list only.
  void* first = slab.allocate(100, 64);
  void* second = slab.allocate(100, 64);
  CHECK(first != second);
  slab.deallocate(first, 100, 64);
  slab.deallocate(second, 100, 64);
  CHECK(slab.statistics().live_bytes == 0);
}

TEST_CASE("hardened: strangers' addresses end the program, with a message") {
  check_dies(
      [](SlabResource& slab) {
        alignas(64) static char mine[4096];
        slab.deallocate(mine, 100, 64);
      },
      "is no block of this resource");
  check_dies(
      [](SlabResource& slab) {
        SlabResource other;
        slab.deallocate(other.allocate(100, 64), 100, 64);
      },
      "is no block of this resource");
  for (const std::size_t offset : {64ul, 4096ul, 100'000ul}) {
    check_dies(
        [&](SlabResource& slab) {
          auto* block = static_cast<std::byte*>(slab.allocate(400'000, 64));
          slab.deallocate(block + offset, 400'000, 64);
        },
        "is no block of this resource");
  }
  check_dies(
      [](SlabResource& slab) {
        auto* block = static_cast<std::byte*>(slab.allocate(1000, 64));
        slab.deallocate(block + 64, 1000, 64);
      },
      "is no block of this resource");
  check_dies(
      [](SlabResource& slab) {
        auto* block = static_cast<std::byte*>(slab.allocate(1000, 64));
        slab.deallocate(block + 1024 + 128, 1000, 64);
      },
      "is no block of this resource");
}

TEST_CASE("hardened: a block that was never handed out is reported, and can be handed out later") {
  SlabResource slab(remembering());
  auto* block = static_cast<std::byte*>(slab.allocate(1000, 64));
  bool below = false;
  for (const std::ptrdiff_t offset : {1024, -1024}) {
    faults.clear();
    slab.deallocate(block + offset, 1000, 64);
    below = below || (faults.size() == 1 && faults[0].find("was never handed out") != std::string::npos);
  }
  CHECK(below);
  faults.clear();
  std::vector<void*> blocks;
  for (int i = 0; i < 200; ++i) blocks.push_back(slab.allocate(1000, 64));
  for (void* one : blocks) slab.deallocate(one, 1000, 64);
  slab.deallocate(block, 1000, 64);
  CHECK(faults.empty());
}

TEST_CASE("hardened: another size than it was allocated with is reported") {
  check_dies([](SlabResource& slab) { slab.deallocate(slab.allocate(1000, 64), 2000, 64); }, "with another size");
  check_dies([](SlabResource& slab) { slab.deallocate(slab.allocate(1000, 64), 999, 64); }, "with another size");
}

#if !CONVOLUME_ADDRESS_SANITIZER  // AddressSanitizer finds these earlier
TEST_CASE("hardened: a size or an alignment that no block has is reported like any other") {
  SlabResource slab(remembering());
  void* block = slab.allocate(1000, 64);
  slab.deallocate(block, ~std::size_t{0}, 64);
  slab.deallocate(block, 1000, 8192);
  REQUIRE(faults.size() == 2);
  for (const std::string& fault : faults) CHECK_THAT(fault, Contains("was allocated with another size"));
  slab.deallocate(block, 1000, 64);
  CHECK(faults.size() == 2);
}

TEST_CASE("hardened: writes behind the end are found when the block is freed") {
  for (const std::size_t bytes : some_bytes) {
    for (const std::size_t behind : {0ul, 7ul}) {
      CAPTURE(bytes, behind);
      check_dies(
          [&](SlabResource& slab) {
            auto* block = static_cast<volatile char*>(slab.allocate(bytes, 64));
            block[bytes + behind] = 0;
            slab.deallocate(const_cast<char*>(block), bytes, 64);
          },
          "was written to behind its end");
    }
  }
}

TEST_CASE("hardened: writes to a freed block are found when it is used again") {
  for (const std::size_t bytes : some_bytes) {
    for (const std::size_t at : {std::size_t{0}, std::min(bytes - 1, std::size_t{1000}), bytes - 1}) {
      CAPTURE(bytes, at);
      check_dies(
          [&](SlabResource& slab) {
            auto* block = static_cast<volatile char*>(slab.allocate(bytes, 64));
            slab.deallocate(const_cast<char*>(block), bytes, 64);
            block[at] = 1;
            static_cast<void>(slab.allocate(bytes, 64));
          },
          "was written to after it was freed");
    }
  }
}
#endif

TEST_CASE("hardened mode is read from the environment when a resource is made, and an option decides over it") {
  const auto hardened = [](SlabOptions options) {
    faults.clear();
    options.on_fault = remember;
    SlabResource slab(options);
    slab.deallocate(slab.allocate(1000, 64), 999, 64);
    return !faults.empty();
  };
  setenv("CONVOLUME_HARDENED_MEMORY", "1", 1);
  CHECK(hardened({}));
  CHECK_FALSE(hardened({.hardened = false}));
  setenv("CONVOLUME_HARDENED_MEMORY", "0", 1);
  CHECK_FALSE(hardened({}));
  CHECK(hardened({.hardened = true}));
  setenv("CONVOLUME_HARDENED_MEMORY", "yes", 1);
  CHECK_THROWS_WITH(SlabResource(), Contains("CONVOLUME_HARDENED_MEMORY: 'yes' is neither 0 nor 1"));
  unsetenv("CONVOLUME_HARDENED_MEMORY");
  CHECK_FALSE(hardened({}));
}
