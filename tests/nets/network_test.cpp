#include "nets/network.hpp"

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "testing/sanitizers.hpp"
#include <catch2/catch.hpp>

#include "convolume/error.hpp"
#include "convolume/memory.hpp"
#include "core/random.hpp"

namespace convolume::nets {
namespace {

const std::string net_head = R"(
name = "net"
[input]
patch = [4, 12, 12]
)";
// Smooth except for the pooling. It has feature maps with several readers, crops, and a node that no other node reads.
const std::string everything = net_head + R"(
[[node]]
name = "a"
type = "conv"
out_channels = 5
kernel = [1, 3, 3]
padding = "same"
activation = "tanh"
[[node]]
name = "p"
type = "max_pool"
from = "a"
window = [1, 2, 2]
[[node]]
name = "b"
type = "conv"
out_channels = 6
kernel = 3
padding = "same"
activation = "sigmoid"
[[node]]
name = "n"
type = "group_norm"
groups = 3
[[node]]
name = "d"
type = "dropout"
rate = 0.3
[[node]]
name = "u"
type = "transposed_conv"
out_channels = 4
kernel = [1, 4, 2]
stride = [1, 2, 2]
padding = [0, 1, 0]
[[node]]
name = "v"
type = "upsample"
from = "d"
factor = [1, 2, 2]
[[node]]
name = "j"
type = "concat"
from = ["a", "u", "v", "input"]
[[node]]
name = "c"
type = "conv"
out_channels = 4
kernel = 3
activation = "tanh"
[[node]]
name = "s"
type = "add"
from = ["c", "u", "c"]
[[node]]
name = "t"
type = "activation"
activation = "tanh"
[[node]]
name = "w"
type = "crop"
before = [0, 1, 0]
after = [1, 0, 2]
[[node]]
name = "logits"
type = "conv"
out_channels = 2
kernel = [1, 1, 2]
)";
const std::string convolutions = net_head + R"(
[[node]]
name = "a"
type = "conv"
out_channels = 4
kernel = 3
padding = "same"
activation = "relu"
[[node]]
name = "b"
type = "conv"
from = "a"
out_channels = 4
kernel = [1, 3, 3]
padding = "same"
[[node]]
name = "c"
type = "concat"
from = ["a", "b"]
[[node]]
name = "d"
type = "conv"
out_channels = 1
kernel = [2, 5, 5]
)";

/// Groups (some do not fill channel blocks), strides, dilations, and a transposed convolution.
const std::string grouped = net_head + R"(
[[node]]
name = "a"
type = "conv"
out_channels = 18
kernel = 3
padding = "same"
activation = "tanh"
[[node]]
name = "b"
type = "conv"
groups = 3
out_channels = 24
kernel = 3
padding = "same"
[[node]]
name = "c"
type = "conv"
groups = 24
out_channels = 24
kernel = [1, 3, 3]
dilation = [1, 2, 2]
activation = "tanh"
[[node]]
name = "d"
type = "conv"
out_channels = 18
kernel = 3
stride = [1, 2, 2]
padding = [1, 1, 1]
[[node]]
name = "logits"
type = "transposed_conv"
out_channels = 1
kernel = [1, 3, 3]
stride = [1, 2, 2]
)";

/// Returns the same net with enough channels for blocked tensors. The channel counts fill blocks only partly.
std::string widened(std::string text) {
  const std::string key = "out_channels = ";
  for (const auto& [narrow, wide] : {std::pair{"4\n", "20\n"}, {"5\n", "21\n"}, {"6\n", "18\n"}}) {
    for (std::size_t at = 0; (at = text.find(key + narrow, at)) != std::string::npos;) {
      text.replace(at + key.size(), 2, wide);
    }
  }
  return text;
}

/// A net in training on fixed noise. The loss is half the sum of squares of logit - target.
class Training {
 public:
  Training(const std::string& text, const NetworkOptions& options,
           std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : spec_(parse_net(text, "net.toml")),
        parameters_(spec_, true, 3, memory),
        network_(spec_, spec_.patch, parameters_,
                 {.batch = 2,
                  .training = true,
                  .engine = options.engine,
                  .memory_budget = options.memory_budget,
                  .slack = options.slack,
                  .fft = options.fft,
                  .cache_spectra = options.cache_spectra,
                  .memory_mode = options.memory_mode,
                  .poison_freed = options.poison_freed},
                 memory),
        target_(network_.logits().shape(), memory) {
    fill(network_.input(), 1);
    fill(target_, 2);
    // Zero biases and unit gammas would hide mistakes.
    for (std::size_t i = 0; i < parameters_.all().size(); ++i) {
      Parameter& p = parameters_.all()[i];
      const RandomKey key{.seed = 4, .a = static_cast<std::uint32_t>(i)};
      for (index_t k = 0; k < p.value.elements(); ++k) {
        p.value.data()[k] += 0.1f * static_cast<float>(normal(key, static_cast<std::uint64_t>(k)));
      }
      p.gradient.fill(0);
    }
    network_.set_iteration(11, 5);
    network_.append_planned([this](TaskGraph& graph) { append(graph); }, graph_);
    network_.place_memory();
  }

  double run(Scheduler& scheduler) {
    graph_.run(scheduler);
    return loss_;
  }
  Parameters& parameters() { return parameters_; }
  Network& network() { return network_; }
  /// Returns the logits followed by all gradients.
  std::vector<float> results() const {
    std::vector<float> all(network_.logits().data(), network_.logits().data() + network_.logits().elements());
    for (const Parameter& p : parameters_.all()) {
      all.insert(all.end(), p.gradient.data(), p.gradient.data() + p.gradient.elements());
    }
    return all;
  }

 private:
  void append(TaskGraph& graph) {
    auto prepared = network_.append_prepare(graph, {});
    const Ready logits = network_.append_forward(graph, {}, std::move(prepared), {});
    const TaskId loss = graph.add(
        {.name = "loss"}, [this] { differentiate(); }, logits.tasks());
    network_.append_backward(graph, Ready::all_of({loss}));
  }
  static void fill(Tensor<float>& t, std::uint32_t stream) {
    const RandomKey key{.seed = 8, .a = stream};
    for (index_t i = 0; i < t.elements(); ++i)
      t.data()[i] = static_cast<float>(normal(key, static_cast<std::uint64_t>(i)));
  }
  void differentiate() {
    loss_ = 0;
    for (index_t i = 0; i < target_.elements(); ++i) {
      const float d = network_.logits().data()[i] - target_.data()[i];
      network_.logits_gradient().data()[i] = d;
      loss_ += 0.5 * static_cast<double>(d) * static_cast<double>(d);
    }
  }

  NetSpec spec_;
  Parameters parameters_;
  Network network_;
  Tensor<float> target_;
  TaskGraph graph_;
  double loss_ = 0;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> results_of(const std::string& text, const NetworkOptions& options) {
  Scheduler serial(1);
  Training on(text, options);
  on.run(serial);
  return on.results();
}

/// A memory resource whose memory is filled with NaN when it is allocated.
class Poison final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* memory = std::pmr::new_delete_resource()->allocate(bytes, alignment);
    std::memset(memory, 0xFF, bytes);
    return memory;
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    std::pmr::new_delete_resource()->deallocate(memory, bytes, alignment);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
};

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

/// Returns |a - b| / |b| in the Euclidean norm.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double square = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    square += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(square / norm);
}

/// Starts all threads: every task waits for the others.
void meet(Scheduler& scheduler) {
  TaskGraph graph;
  std::atomic<int> arrived{0};
  for (int i = 0; i < scheduler.threads(); ++i) {
    graph.add({.name = "meet"}, [&] {
      ++arrived;
      while (arrived < scheduler.threads()) std::this_thread::yield();
    });
  }
  graph.run(scheduler);
}

}  // namespace

TEST_CASE("gradients of a whole net are slopes of the loss", "[network]") {
  Scheduler scheduler(2);
  Training on(everything, {});
  on.run(scheduler);
  for (std::size_t index = 0; index < on.parameters().all().size(); ++index) {
    Parameter& p = on.parameters().all()[index];
    INFO(p.name);
    on.run(scheduler);
    const auto n = static_cast<std::size_t>(p.value.elements());
    const std::vector<float> before(p.value.data(), p.value.data() + n);
    const std::vector<float> gradient(p.gradient.data(), p.gradient.data() + n);
    double norm = 0;
    for (const float g : gradient) norm += static_cast<double>(g) * static_cast<double>(g);
    norm = std::sqrt(norm);
    REQUIRE(norm > 0);
    // Directions: the gradient, and random corners of the cube.
    for (std::uint32_t trial = 0; trial < 4; ++trial) {
      std::vector<double> direction(n);
      for (std::size_t i = 0; i < n; ++i) {
        const bool up = uniform({.seed = 21, .a = trial, .b = static_cast<std::uint32_t>(index)}, i) < 0.5;
        direction[i] =
            trial == 0 ? static_cast<double>(gradient[i]) / norm : (up ? 1 : -1) / std::sqrt(static_cast<double>(n));
      }
      constexpr double step = 3e-4;  // small, so few maxima of the pooling change position
      const auto loss_at = [&](double distance) {
        for (std::size_t i = 0; i < n; ++i) {
          p.value.data()[i] = static_cast<float>(static_cast<double>(before[i]) + distance * direction[i]);
        }
        return on.run(scheduler);
      };
      const double measured = (loss_at(step) - loss_at(-step)) / (2 * step);
      std::copy(before.begin(), before.end(), p.value.data());
      double expected = 0;
      for (std::size_t i = 0; i < n; ++i) expected += static_cast<double>(gradient[i]) * direction[i];
      INFO("trial " << trial << ": measured " << measured << ", expected " << expected << ", norm " << norm);
      CHECK(std::abs(measured - expected) <
            0.02 * std::max(std::abs(expected), norm / std::sqrt(static_cast<double>(n))));
    }
  }
}

TEST_CASE("gradients have the same bits on any number of threads", "[network]") {
  const std::string wide = widened(everything);
  for (const auto* text : {&everything, &convolutions, &wide}) {
    const auto expected = results_of(*text, {});
    for (const int threads : {2, 3}) {
      Scheduler scheduler(threads);
      Training on(*text, {});
      for (int run = 0; run < 5; ++run) {
        meet(scheduler);
        on.run(scheduler);
        REQUIRE(same_bits(on.results(), expected));
      }
      CHECK(scheduler.distinct_workers() == threads);
    }
  }
}

TEST_CASE("gradients wait for what the forward pass leaves them, where no later node looks as well", "[network]") {
  const std::string front = R"(
name = "net"
[input]
patch = [5, 65, 65]
[[node]]
name = "a"
type = "conv"
out_channels = 16
kernel = 3
padding = "same"
)";
  const std::string norm = "[[node]]\nname = \"n\"\ntype = \"group_norm\"\ngroups = 1\n";
  const std::string tanh = "[[node]]\nname = \"t\"\ntype = \"activation\"\nactivation = \"tanh\"\n";
  // The last plane and row are in no window.
  const std::string back = R"(
[[node]]
name = "p"
type = "max_pool"
window = 2
[[node]]
name = "u"
type = "upsample"
factor = 2
[[node]]
name = "logits"
type = "conv"
out_channels = 1
kernel = 1
)";
  for (const std::string& text : {front + norm + back, front + tanh + back, front + tanh + norm + back}) {
    std::vector<float> expected;
    for (const int threads : {1, 8, 8, 8}) {
      Poison poison;  // only the first run could read uninitialised memory
      Scheduler scheduler(threads);
      Training on(text, {}, &poison);
      on.run(scheduler);
      if (expected.empty()) expected = on.results();
      for (const float value : expected) REQUIRE(std::isfinite(value));
      REQUIRE(same_bits(on.results(), expected));
    }
  }
}

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

TEST_CASE("a net gives the same bits with and without caching of spectra, by either backend", "[network]") {
  for (const fft::Backend backend : {fft::Backend::native, fft::Backend::fftw}) {
    NetworkOptions options{.engine = Engine::fft_volume, .fft = {.backend = backend}};
    Training cached(convolutions, options);
    options.cache_spectra = false;
    Training recomputed(convolutions, options);
    Scheduler serial(1), two(2);
    cached.run(serial);
    recomputed.run(two);
    CHECK(same_bits(cached.results(), recomputed.results()));
    // What is kept decides no bit, so checkpoints must not tell it apart.
    NumericsRecord of_cached, of_recomputed;
    cached.network().add_numerics(of_cached);
    recomputed.network().add_numerics(of_recomputed);
    CHECK(of_cached.to_text() == of_recomputed.to_text());
    CHECK_THAT(of_cached.to_text(), Catch::Contains(backend == fft::Backend::fftw ? "fftw" : "native"));
  }
}

TEST_CASE("engines agree on a whole net", "[network]") {
  const auto a = results_of(convolutions, {.engine = Engine::fft_volume});
  const auto b = results_of(convolutions, {.engine = Engine::reference});
  CHECK(difference(a, b) < 1e-5);
}

TEST_CASE("a net runs groups, strides and dilations, on plain tensors where groups do not fill channel blocks") {
  if (test::sanitized) return;  // the reference engine is slow
  CHECK(difference(results_of(grouped, {}), results_of(grouped, {.engine = Engine::reference})) < 1e-5);
  CHECK(difference(results_of(grouped, {.engine = Engine::fft_tiled}), results_of(grouped, {})) < 1e-5);
}

TEST_CASE("a net of many channels runs on blocked tensors and gives what it gives on plain ones", "[network]") {
  if (test::sanitized) return;  // the reference engine is slow
  const std::string text = widened(everything);
  Training blocked(text, {}), plain(text, {.engine = Engine::reference});
  Scheduler scheduler(2);
  blocked.run(scheduler);
  plain.run(scheduler);
  for (std::size_t i = 0; i < blocked.network().spec().nodes.size(); ++i) {
    const NodeSpec& node = blocked.network().spec().nodes[i];
    INFO(node.name);
    CHECK(blocked.network().layout_of(i) == (node.name == "logits" ? Layout::plain : Layout::blocked));
    CHECK(plain.network().layout_of(i) == Layout::plain);
  }
  CHECK(difference(blocked.results(), plain.results()) < 1e-5);
  NumericsRecord record;
  blocked.network().add_numerics(record);
  CHECK_THAT(record.to_text(), Catch::Contains("node.b.layout"));
}

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

TEST_CASE("dropout draws anew by seed and iteration, and repeats itself", "[network]") {
  Scheduler serial(1);
  Training on(everything, {});
  const double loss = on.run(serial);
  CHECK(on.run(serial) == loss);
  on.network().set_iteration(11, 6);
  CHECK(on.run(serial) != loss);
  on.network().set_iteration(12, 5);
  CHECK(on.run(serial) != loss);
  on.network().set_iteration(11, 5);
  CHECK(on.run(serial) == loss);
}

TEST_CASE("the first node that is not finite is named", "[network]") {
  Scheduler serial(1);
  Training on(everything, {.memory_mode = MemoryMode::separate});
  on.run(serial);
  CHECK(on.network().first_non_finite() == std::nullopt);
  on.parameters().find("c.bias")->value.data()[1] = std::numeric_limits<float>::quiet_NaN();
  on.run(serial);
  CHECK(on.network().first_non_finite() == std::optional<std::string>("c"));
  on.network().input().data()[7] = std::numeric_limits<float>::infinity();
  on.run(serial);
  CHECK(on.network().first_non_finite() == std::optional<std::string>("input"));
}

TEST_CASE("parameters have names, shapes and starting values", "[network]") {
  const NetSpec spec = parse_net(everything, "net.toml");
  Parameters parameters(spec, true, 1, std::pmr::get_default_resource());
  std::string names;
  index_t count = 0;
  for (const Parameter& p : parameters.all()) {
    names += p.name + " ";
    count += p.value.elements();
    CHECK(p.gradient.shape() == p.value.shape());
    CHECK(p.moment1.shape() == p.value.shape());
    CHECK(p.moment2.shape() == p.value.shape());
  }
  CHECK(names ==
        "a.weight a.bias b.weight b.bias n.gamma n.beta u.weight u.bias c.weight c.bias "
        "logits.weight logits.bias ");
  CHECK(parameters.count() == count);
  CHECK(parameters.find("a.weight")->value.shape() == Shape5{5, 1, {1, 3, 3}});
  CHECK(parameters.find("u.weight")->value.shape() == Shape5{6, 4, {1, 4, 2}});
  CHECK(parameters.find("n.gamma")->value.data()[5] == 1);
  CHECK(parameters.find("n.beta")->value.data()[5] == 0);
  CHECK(parameters.find("a.bias")->value.data()[4] == 0);
  CHECK(parameters.find("a.gamma") == nullptr);

  const auto& weight = parameters.find("b.weight")->value;
  double squares = 0;
  for (index_t i = 0; i < weight.elements(); ++i) {
    squares += static_cast<double>(weight.data()[i]) * static_cast<double>(weight.data()[i]);
  }
  // Glorot, because a sigmoid follows: 2 / (5 * 27 + 6 * 27).
  CHECK(squares / static_cast<double>(weight.elements()) == Approx(2.0 / (11 * 27)).epsilon(0.2));
  Parameters same(spec, false, 1, std::pmr::get_default_resource()),
      other(spec, false, 2, std::pmr::get_default_resource());
  CHECK(std::equal(weight.data(), weight.data() + weight.elements(), same.find("b.weight")->value.data()));
  CHECK_FALSE(std::equal(weight.data(), weight.data() + weight.elements(), other.find("b.weight")->value.data()));
  CHECK_FALSE(static_cast<bool>(same.find("b.weight")->gradient));
}

}  // namespace convolume::nets
