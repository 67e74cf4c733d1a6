#include "bench/alloc/alloc_trace.hpp"

#include <atomic>
#include <cstring>
#include <fstream>
#include <mutex>
#include <unordered_map>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "convolume/memory.hpp"
#include "nets/io/synthetic.hpp"
#include "nets/train/trainer.hpp"

namespace convolume::bench {
namespace {

/// A memory resource that records all calls.
class Recorder final : public std::pmr::memory_resource {
 public:
  Recorder(AllocTrace& trace, std::pmr::memory_resource& memory) : trace_(trace), memory_(memory) {}
  void next_part() { ++trace_.parts; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* memory = memory_.allocate(bytes, alignment);
    const std::lock_guard lock(mutex_);
    live_[memory] = trace_.blocks;
    trace_.events.push_back({std::max<std::size_t>(bytes, 1), trace_.blocks++, thread(), trace_.parts});
    return memory;
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    {
      const std::lock_guard lock(mutex_);
      const auto found = live_.find(memory);
      trace_.events.push_back({0, found->second, thread(), trace_.parts});
      live_.erase(found);
    }
    memory_.deallocate(memory, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::uint16_t thread() {
    const auto [found, added] = threads_.try_emplace(std::this_thread::get_id(), threads_.size());
    return static_cast<std::uint16_t>(found->second % static_cast<std::size_t>(trace_.threads));
  }

  AllocTrace& trace_;
  std::pmr::memory_resource& memory_;
  std::mutex mutex_;
  std::unordered_map<void*, std::uint32_t> live_;
  std::unordered_map<std::thread::id, std::size_t> threads_;
};

}  // namespace

AllocTrace record_training(const nets::NetSpec& spec, nets::MemoryMode mode, int threads, int iterations) {
  AllocTrace trace{.name = fmt::format("{}, {}", spec.name, name_of(mode)), .threads = threads};
  SlabResource memory, unrecorded;
  Recorder recorder(trace, memory);
  {
    nets::Dataset data;
    auto made = nets::make_synthetic_volume({.extent = spec.patch + Extent3::all(8)}, &unrecorded);
    data.train.push_back({.image = std::move(made.image), .label = std::move(made.label), .mask = {}, .name = "made"});
    nets::normalise(data.train[0].image);
    Scheduler scheduler(threads);
    nets::Trainer trainer(spec, data, 1, {.engine = Engine::automatic, .memory_budget = 4_GiB, .memory_mode = mode},
                          scheduler, &recorder);
    for (int i = 0; i < 2; ++i) trainer.step();
    for (int i = 0; i < iterations; ++i) {
      recorder.next_part();
      trainer.step();
    }
    recorder.next_part();
  }
  ++trace.parts;
  return trace;
}

void write_trace(const AllocTrace& trace, const std::filesystem::path& file) {
  std::ofstream out(file, std::ios::binary);
  const std::uint64_t header[] = {static_cast<std::uint64_t>(trace.threads), trace.parts, trace.blocks,
                                  trace.events.size()};
  out.write(reinterpret_cast<const char*>(header), sizeof header);
  out.write(reinterpret_cast<const char*>(trace.events.data()),
            static_cast<std::streamsize>(trace.events.size() * sizeof(AllocEvent)));
  out.close();
  if (!out) throw IoError(fmt::format("{}: writing failed; make room in that folder", file.string()));
}

AllocTrace read_trace(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::uint64_t header[4] = {};
  in.read(reinterpret_cast<char*>(header), sizeof header);
  AllocTrace trace{.name = file.stem().string(), .threads = static_cast<int>(header[0])};
  trace.parts = static_cast<std::uint16_t>(header[1]);
  trace.blocks = static_cast<std::uint32_t>(header[2]);
  if (in && header[3] * sizeof(AllocEvent) + sizeof header == std::filesystem::file_size(file)) {
    trace.events.resize(header[3]);
    in.read(reinterpret_cast<char*>(trace.events.data()),
            static_cast<std::streamsize>(trace.events.size() * sizeof(AllocEvent)));
  } else {
    in.setstate(std::ios::failbit);
  }
  if (!in) throw FormatError(fmt::format("{}: not a trace of this bench_alloc; record it again", file.string()));
  return trace;
}

}  // namespace convolume::bench
