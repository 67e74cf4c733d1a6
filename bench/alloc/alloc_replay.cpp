#include "bench/alloc/alloc_replay.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <memory_resource>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include "bench/alloc/alloc_trace.hpp"
#include "convolume/error.hpp"
#include "convolume/memory.hpp"
#include "core/random.hpp"

namespace convolume::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t page = 4096, alignment = 64;

/// A memory resource on the process's malloc, whichever library provides it.
class Heap final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    void* memory = std::aligned_alloc(align, (bytes + align - 1) / align * align);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  void do_deallocate(void* memory, std::size_t, std::size_t) override { std::free(memory); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

/// Throws Unsupported if another library than the expected one provides aligned_alloc().
void check_library(const std::string& library) {
  Dl_info info{};
  void* function = dlsym(RTLD_DEFAULT, "aligned_alloc");
  if (function == nullptr || dladdr(function, &info) == 0) throw Unsupported("aligned_alloc cannot be found");
  if (std::string(info.dli_fname).find(library) == std::string::npos) {
    throw Unsupported(
        fmt::format("aligned_alloc comes from {}, not from {}; install the library", info.dli_fname, library));
  }
}

/// Writes one byte of every page. A program does at least this with memory that it allocates.
void touch(void* memory, std::size_t bytes) {
  auto* data = static_cast<volatile char*>(memory);
  for (std::size_t at = 0; at < bytes; at += page) data[at] = 1;
}

double between(Clock::time_point a, Clock::time_point b) { return std::chrono::duration<double>(b - a).count(); }

/// Work that is repeated.
struct Job {
  std::function<double()> round;  ///< returns the seconds of the timed part
  std::function<std::size_t()>
      live_peak;  ///< replays with counting; returns the most bytes that were allocated at once so far
};

/// Runs body(thread) on a number of threads, which live until the destruction.
class Team {
 public:
  explicit Team(int threads) : gate_(threads) {
    for (int t = 1; t < threads; ++t) {
      others_.emplace_back([this, t] {
        while (true) {
          gate_.arrive_and_wait();
          if (!body_) return;
          (*body_)(t);
          gate_.arrive_and_wait();
        }
      });
    }
  }
  ~Team() {
    body_ = nullptr;
    gate_.arrive_and_wait();
    for (auto& other : others_) other.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  /// Returns the seconds until all threads were done.
  double run(const std::function<void(int)>& body) {
    body_ = &body;
    gate_.arrive_and_wait();
    const auto begin = Clock::now();
    body(0);
    gate_.arrive_and_wait();
    return between(begin, Clock::now());
  }

 private:
  const std::function<void(int)>* body_ = nullptr;
  std::barrier<> gate_;
  std::vector<std::thread> others_;
};

/// Replays a trace. Every thread repeats its recorded events in order. Before it frees a block, it waits until the
/// block is allocated.
class TraceReplay {
 public:
  TraceReplay(const AllocTrace& trace, std::pmr::memory_resource& memory)
      : memory_(memory),
        team_(trace.threads),
        parts_(trace.parts, std::vector<std::vector<AllocEvent>>(static_cast<std::size_t>(trace.threads))),
        bytes_(trace.blocks),
        blocks_(std::make_unique<std::atomic<void*>[]>(trace.blocks)) {
    for (const AllocEvent& event : trace.events) {
      // One thread executes the parts that are not timed.
      const bool timed = event.part > 0 && event.part + 1 < trace.parts;
      parts_[event.part][timed ? event.thread : 0].push_back(event);
      if (event.bytes != 0) bytes_[event.block] = event.bytes;
    }
  }

  /// Returns the most bytes that were allocated at once. Threads may interleave differently than in the recording, and
  /// then hold more. Counting takes time, so it needs a separate round.
  std::size_t live_peak() {
    counts_ = true;
    round();
    counts_ = false;
    return peak_;
  }

  double round() {
    double seconds = 0;
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      const double now = team_.run([&](int t) { work(parts_[part][static_cast<std::size_t>(t)]); });
      if (part > 0 && part + 1 < parts_.size()) seconds += now;
    }
    return seconds;
  }

 private:
  void work(const std::vector<AllocEvent>& events) {
    for (const AllocEvent& event : events) {
      std::atomic<void*>& block = blocks_[event.block];
      if (counts_) count(event);
      if (event.bytes != 0) {
        void* memory = memory_.allocate(event.bytes, alignment);
        touch(memory, event.bytes);
        block.store(memory, std::memory_order_release);  // publishes what touch() wrote
      } else {
        void* memory = nullptr;
        while ((memory = block.load(std::memory_order_acquire)) == nullptr) std::this_thread::yield();
        block.store(nullptr, std::memory_order_relaxed);  // no other event waits for this block
        memory_.deallocate(memory, bytes_[event.block], alignment);
      }
    }
  }

  void count(const AllocEvent& event) {
    if (event.bytes == 0) {
      live_ -= bytes_[event.block];
      return;
    }
    const std::size_t now = live_ += event.bytes;
    for (std::size_t peak = peak_; peak < now && !peak_.compare_exchange_weak(peak, now);) {
    }
  }

  std::pmr::memory_resource& memory_;
  bool counts_ = false;
  std::atomic<std::size_t> live_{0}, peak_{0};
  Team team_;
  std::vector<std::vector<std::vector<AllocEvent>>> parts_;
  std::vector<std::size_t> bytes_;
  std::unique_ptr<std::atomic<void*>[]> blocks_;
};

struct Held {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// P. Larson, M. Krishnan, "Memory allocation for long-running server applications", ISMM 1998: every thread replaces
/// random blocks of its set; then each set passes to another thread.
class Larson {
 public:
  Larson(int threads, std::size_t operations, std::pmr::memory_resource& memory)
      : memory_(memory), operations_(operations), team_(threads), sets_(static_cast<std::size_t>(threads)) {
    for (auto& set : sets_) set.resize(1000);
  }
  ~Larson() {
    for (auto& set : sets_) {
      for (const Held& held : set) {
        if (held.data != nullptr) memory_.deallocate(held.data, held.bytes, alignment);
      }
    }
  }
  Larson(const Larson&) = delete;
  Larson& operator=(const Larson&) = delete;

  double round() {
    double seconds = 0;
    for (std::uint32_t turn = 0; turn < 4; ++turn) {
      seconds +=
          team_.run([&](int t) { replace(sets_[(static_cast<std::size_t>(t) + turn) % sets_.size()], t, turn); });
    }
    return seconds;
  }

 private:
  void replace(std::vector<Held>& set, int thread, std::uint32_t turn) {
    const RandomKey key{.seed = 1, .a = static_cast<std::uint32_t>(thread), .b = turn};
    for (std::uint64_t i = 0; i < operations_ / 4; ++i) {
      Held& held = set[uniform_below(key, 2 * i, set.size())];
      if (held.data != nullptr) memory_.deallocate(held.data, held.bytes, alignment);
      held.bytes = 16 + uniform_below(key, 2 * i + 1, 4000);
      held.data = memory_.allocate(held.bytes, alignment);
      touch(held.data, held.bytes);
    }
  }

  std::pmr::memory_resource& memory_;
  std::size_t operations_;
  Team team_;
  std::vector<std::vector<Held>> sets_;
};

/// Every block is freed by another thread than the one that allocated it. Threads alternate: each allocates a batch,
/// then each frees the batch of its neighbour.
class Handover {
 public:
  Handover(int threads, std::size_t operations, std::pmr::memory_resource& memory)
      : memory_(memory), rounds_(operations / batch), team_(threads), batches_(static_cast<std::size_t>(threads)) {
    for (auto& own : batches_) own.resize(batch);
  }

  double round() {
    double seconds = 0;
    for (std::size_t i = 0; i < rounds_; ++i) {
      seconds += team_.run([&](int t) {
        for (std::size_t k = 0; k < batch; ++k) {
          Held& held = batches_[static_cast<std::size_t>(t)][k];
          held.bytes = 64 + 100 * (k % 37);
          held.data = memory_.allocate(held.bytes, alignment);
          touch(held.data, held.bytes);
        }
      });
      seconds += team_.run([&](int t) {
        for (const Held& held : batches_[(static_cast<std::size_t>(t) + 1) % batches_.size()]) {
          memory_.deallocate(held.data, held.bytes, alignment);
        }
      });
    }
    return seconds;
  }

 private:
  static constexpr std::size_t batch = 2000;
  std::pmr::memory_resource& memory_;
  std::size_t rounds_;
  Team team_;
  std::vector<std::vector<Held>> batches_;
};

/// Returns a line of /proc/self/status in bytes.
std::size_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stoull(line.substr(name.size() + 1)) << 10;
  }
  throw Unsupported("/proc/self/status has no " + name);
}

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

void answer(const Job& job) {
  const std::size_t before = status_bytes("VmRSS");
  int rounds = 0;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "round") {
      const long faults = page_faults();
      const double seconds = job.round();
      fmt::print("{:.9f} {}\n", seconds, page_faults() - faults);
      ++rounds;
    } else {
      // As many rounds as could have reached the peak.
      std::size_t live = 0;
      for (; rounds > 0; --rounds) live = std::max(live, job.live_peak());
      fmt::print("{} {}\n", status_bytes("VmHWM") - before, live);
    }
    std::fflush(stdout);
  }
}

}  // namespace

int replay(const ReplayOptions& o) {
  Heap heap;
  SlabResource slab;
  std::pmr::memory_resource* memory = &slab;
  if (o.allocator != "slab") {
    check_library(o.library);
    memory = &heap;
  }
  if (o.work == "larson") {
    Larson larson(o.threads, o.operations, *memory);
    answer({[&] { return larson.round(); }, [] { return std::size_t{0}; }});
  } else if (o.work == "handover") {
    Handover handover(o.threads, o.operations, *memory);
    answer({[&] { return handover.round(); }, [] { return std::size_t{0}; }});
  } else {
    TraceReplay trace(read_trace(o.work), *memory);
    answer({[&] { return trace.round(); }, [&] { return trace.live_peak(); }});
  }
  return 0;
}

}  // namespace convolume::bench
