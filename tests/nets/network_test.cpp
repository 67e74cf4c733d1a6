#include "nets/graph/network.hpp"

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "testing/sanitizers.hpp"
#include <catch2/catch.hpp>

#include "convolume/error.hpp"
#include "tests/nets/network_harness.hpp"

namespace convolume::nets {
namespace {

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
