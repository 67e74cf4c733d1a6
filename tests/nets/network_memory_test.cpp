// Memory of a net in training: budgets, the arena, and what tasks take and free.
#include <atomic>

#include <catch2/catch.hpp>

#include "convolume/memory.hpp"
#include "tests/nets/network_harness.hpp"

namespace convolume::nets {
namespace {

/// A memory resource that forwards to another one and rejects one request.
class Shortage final : public std::pmr::memory_resource {
 public:
  explicit Shortage(std::pmr::memory_resource* upstream) : upstream_(upstream) {}
  void fail_at(int request) { left_ = request; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (left_-- == 0) throw std::bad_alloc();
    return upstream_->allocate(bytes, alignment);
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    upstream_->deallocate(memory, bytes, alignment);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  std::pmr::memory_resource* upstream_;
  std::atomic<int> left_{-1};
};

/// Norms with activations behind them, with several readers, with dropout between, and at both ends of the net.
const std::string normalised = net_head + R"(
[[node]]
name = "n0"
type = "group_norm"
groups = 1
[[node]]
name = "r0"
type = "activation"
activation = "relu"
[[node]]
name = "a"
type = "conv"
out_channels = 20
kernel = [3, 3, 3]
padding = "same"
[[node]]
name = "n1"
type = "group_norm"
groups = 4
[[node]]
name = "r1"
type = "activation"
activation = "leaky_relu"
[[node]]
name = "b"
type = "conv"
out_channels = 20
kernel = [3, 3, 3]
padding = "same"
[[node]]
name = "n2"
type = "group_norm"
groups = 20
[[node]]
name = "d2"
type = "dropout"
rate = 0.2
[[node]]
name = "r2"
type = "activation"
activation = "sigmoid"
[[node]]
name = "c"
type = "conv"
from = ["n2"]
out_channels = 20
kernel = [1, 3, 3]
padding = "same"
[[node]]
name = "n3"
type = "group_norm"
groups = 5
[[node]]
name = "r3"
type = "activation"
activation = "tanh"
[[node]]
name = "s"
type = "add"
from = ["r2", "r3"]
[[node]]
name = "d"
type = "conv"
out_channels = 1
kernel = [1, 1, 1]
[[node]]
name = "n4"
type = "group_norm"
groups = 1
[[node]]
name = "r4"
type = "activation"
activation = "tanh"
)";
}  // namespace

TEST_CASE("the memory budget changes what is kept, and no bit", "[network]") {
  const auto kept = [](const Network& network) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < network.spec().nodes.size(); ++i) {
      if (network.plan_of(i) == nullptr) continue;
      for (const CacheCost& cache : network.plan_of(i)->caches()) {
        if (cache.budgeted && cache.kept) bytes += cache.bytes;
      }
    }
    return bytes;
  };
  Scheduler serial(1);
  for (const Engine engine : {Engine::fft_volume, Engine::fft_tiled}) {
    const std::string net = engine == Engine::fft_tiled ? widened(convolutions) : convolutions;
    Training all(net, {.engine = engine, .memory_budget = 0});
    all.run(serial);
    const std::size_t most = kept(all.network());
    REQUIRE(most > 0);
    for (const std::size_t budget : {std::size_t{1}, most / 4, most / 2, most - 1, most}) {
      INFO(name_of(engine) << ", budget " << budget << " of " << most);
      Training some(net, {.engine = engine, .memory_budget = budget});
      some.run(serial);
      CHECK(kept(some.network()) <= budget);
      CHECK((kept(some.network()) == most) == (budget == most));
      CHECK(same_bits(some.results(), all.results()));
    }
  }
}

TEST_CASE("tensors that share an arena, or come and go as tasks run, give the bits of separate tensors", "[network]") {
  const std::string wide = widened(everything), twice = net_head + R"(
[[node]]
name = "a"
type = "conv"
out_channels = 9
kernel = [1, 3, 3]
activation = "relu"
[[node]]
name = "b"
type = "conv"
out_channels = 3
kernel = [1, 3, 3]
padding = "same"
[[node]]
name = "c"
type = "add"
from = ["a", "a"]
[[node]]
name = "d"
type = "conv"
out_channels = 9
kernel = [1, 3, 3]
padding = "same"
[[node]]
name = "e"
type = "conv"
out_channels = 9
kernel = [1, 3, 3]
padding = "same"
[[node]]
name = "f"
type = "concat"
from = ["b", "e", "b"]
[[node]]
name = "g"
type = "conv"
out_channels = 1
kernel = [1, 1, 1]
)";
  for (const auto* text : {&everything, &convolutions, &wide, &twice, &normalised}) {
    const auto expected = results_of(*text, {.memory_mode = MemoryMode::separate});
    for (const MemoryMode mode : {MemoryMode::arena, MemoryMode::slab}) {
      for (const int threads : {1, 2, 8}) {
        CAPTURE(name_of(mode), threads);
        Scheduler scheduler(threads);
        Poison memory;
        // Odd numbers of threads are tried with memory that is reused at once.
        const Slack slack = threads == 2 ? Slack{} : Slack{.tensors = 0, .working = 0};
        Training on(*text, {.slack = slack, .memory_mode = mode, .poison_freed = true}, &memory);
        for (int run = 0; run < 4; ++run) {
          on.run(scheduler);
          REQUIRE(same_bits(on.results(), expected));
        }
      }
    }
  }
}

TEST_CASE("inference gives the same bits in every memory mode, also where the net ends with a norm and an activation") {
  const std::string wide = widened(everything);
  for (const auto* text : {&everything, &convolutions, &wide, &normalised}) {
    const NetSpec spec = parse_net(*text, "net.toml");
    std::vector<float> expected;
    for (const MemoryMode mode : {MemoryMode::separate, MemoryMode::arena, MemoryMode::slab}) {
      CAPTURE(spec.name, name_of(mode));
      Scheduler scheduler(2);
      Poison memory;
      Parameters parameters(spec, false, 3, &memory);
      Network network(spec, spec.patch, parameters, {.batch = 2, .memory_mode = mode, .poison_freed = true}, &memory);
      for (index_t i = 0; i < network.input().elements(); ++i) {
        network.input().data()[i] = static_cast<float>(normal({.seed = 1}, static_cast<std::uint64_t>(i)));
      }
      TaskGraph prepare, forward;
      network.append_planned(
          [&](TaskGraph& first, TaskGraph& second) {
            network.append_prepare(first, {});
            network.append_forward(second, {}, {}, {});
          },
          prepare, forward);
      network.place_memory();
      prepare.run(scheduler);
      for (int run = 0; run < 2; ++run) {
        forward.run(scheduler);
        const float* logits = network.logits().data();
        const std::vector<float> values(logits, logits + network.logits().elements());
        if (expected.empty()) expected = values;
        REQUIRE(std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }));
        CHECK(values == expected);
      }
    }
  }
}

TEST_CASE("what engines keep between tasks has a place in the arena, and gives the bits of separate buffers",
          "[network]") {
  for (const Engine engine : {Engine::fft_tiled, Engine::fft_volume, Engine::direct}) {
    for (const std::size_t budget : {std::size_t{0}, std::size_t{1}}) {
      for (const bool cache : {true, false}) {
        CAPTURE(name_of(engine), budget, cache);
        NetworkOptions options{
            .engine = engine, .memory_budget = budget, .cache_spectra = cache, .memory_mode = MemoryMode::separate};
        const auto expected = results_of(convolutions, options);
        options.memory_mode = MemoryMode::arena;
        options.poison_freed = true;
        Scheduler scheduler(4);
        Poison memory;
        Training on(convolutions, options, &memory);
        CHECK(on.network().lifetimes().buffer_bytes(Lifetimes::Content::working) > 0);
        for (int run = 0; run < 3; ++run) {
          on.run(scheduler);
          REQUIRE(same_bits(on.results(), expected));
        }
      }
    }
  }
}

TEST_CASE("tasks free every tensor and spectrum that they have taken, also where memory ends in between", "[network]") {
  const auto expected = results_of(convolutions, {.memory_mode = MemoryMode::separate});
  SlabResource slab;
  Shortage memory(&slab);
  Scheduler scheduler(2);
  Training on(convolutions, {.memory_mode = MemoryMode::slab}, &memory);
  const std::size_t before = slab.statistics().live_bytes;
  on.run(scheduler);
  CHECK(slab.statistics().live_bytes == before);
  CHECK(slab.statistics().peak_bytes > 2 * before);
  int fails = 0;
  for (bool failed = true; failed; ++fails) {
    memory.fail_at(fails);
    failed = false;
    try {
      on.run(scheduler);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    REQUIRE(slab.statistics().live_bytes == before);
  }
  CHECK(fails > 20);
  CHECK(same_bits(on.results(), expected));
}

TEST_CASE("iterations leave no memory behind", "[network]") {
  for (const Engine engine : {Engine::automatic, Engine::fft_volume}) {
    for (const std::size_t budget : {std::size_t{0}, std::size_t{1}}) {
      const bool caching = budget == 0 || engine == Engine::automatic;
      SlabResource memory;
      {
        Scheduler scheduler(2);
        Training on(engine == Engine::automatic ? everything : convolutions,
                    {.engine = engine, .memory_budget = budget, .cache_spectra = caching}, &memory);
        for (int i = 0; i < 3; ++i) on.run(scheduler);
        const SlabStatistics before = memory.statistics();
        for (int i = 0; i < 10; ++i) on.run(scheduler);
        const SlabStatistics after = memory.statistics();
        CHECK(after.live_bytes == before.live_bytes);
        CHECK(after.live_bytes >= on.network().lifetimes().arena_bytes());
        CHECK(on.network().lifetimes().arena_bytes() > 0);
        for (std::size_t c = 0; c < after.classes.size(); ++c) CHECK(after.classes[c].live == before.classes[c].live);
      }
      CHECK(memory.statistics().live_bytes == 0);
    }
  }
}

}  // namespace convolume::nets
