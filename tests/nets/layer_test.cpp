// A kind of layer that only this file knows, and what a step refuses.
#include <cmath>
#include <stdexcept>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convolume/error.hpp"
#include "nets/layers/layer_kinds.hpp"
#include "nets/spec/net_json.hpp"
#include "tests/nets/network_harness.hpp"

namespace convolume::nets {
namespace {

/// y = gain * x * x, with one gain per channel.
class SquareTasks final : public LayerTasks {
 public:
  explicit SquareTasks(const LayerSetup& setup) : gain_(*setup.parameters[0]) {}

  Ready append_forward(ForwardStep& step) override {
    const auto x = step.x();
    const auto y = step.y();
    const Ready ready = step.x_ready() & step.gate() & step.parameter_ready(&gain_);
    return Ready::all_of({step.graph().add(
        {.name = "square"},
        [this, x, y] {
          each(y, [&](index_t n, index_t c, index_t z, index_t v, index_t u) {
            y(n, c, z, v, u) = gain_.value.data()[c] * x(n, c, z, v, u) * x(n, c, z, v, u);
          });
        },
        ready.tasks())});
  }
  void append_backward(BackwardStep& step) override {
    const auto x = step.x(), dy = step.dy();
    const auto dx = step.dx();
    const bool add = step.adds_dx();
    const TaskId done = step.graph().add(
        {.name = "square backward"},
        [this, x, dy, dx, add] {
          gain_.gradient.fill(0);
          each(dy, [&](index_t n, index_t c, index_t z, index_t v, index_t u) {
            const float one = x(n, c, z, v, u), d = dy(n, c, z, v, u);
            gain_.gradient.data()[c] += one * one * d;
            dx(n, c, z, v, u) = (add ? dx(n, c, z, v, u) : 0.0f) + 2 * gain_.value.data()[c] * one * d;
          });
        },
        step.all_ready().tasks());
    step.wrote_gradient(gain_, Ready::all_of({done}));
    step.wrote_dx(0, Ready::all_of({done}));
  }

 private:
  template <class T, class Body>
  static void each(const View<T>& view, const Body& body) {
    const Shape5& s = view.shape;
    for (index_t n = 0; n < s.n; ++n) {
      for (index_t c = 0; c < s.c; ++c) {
        for (index_t z = 0; z < s.extent.z; ++z) {
          for (index_t v = 0; v < s.extent.y; ++v) {
            for (index_t u = 0; u < s.extent.x; ++u) body(n, c, z, v, u);
          }
        }
      }
    }
  }

  Parameter& gain_;
};

class SquareLayer final : public Layer {
 public:
  explicit SquareLayer(double gain) : gain_(gain) {}
  static std::shared_ptr<const Layer> read(TomlTable& table) {
    return std::make_shared<SquareLayer>(table.number("gain", -10, 10, 1.0));
  }

  std::string text() const override { return fmt::format("square {}", gain_); }
  std::string title() const override { return text(); }
  void add_keys(nlohmann::ordered_json& json, const NodeShape&, const NodeShape&) const override {
    json["type"] = "square";
    json["gain"] = gain_;
  }
  std::vector<ParameterSpec> parameters(const NodeShape& x, const Activation&) const override {
    return {{.name = "gain", .shape = {1, x.channels, {1, 1, 1}}, .start = static_cast<float>(gain_)}};
  }
  bool reads_y_backward() const override { return false; }
  std::unique_ptr<LayerTasks> make_tasks(const LayerSetup& setup) const override {
    return std::make_unique<SquareTasks>(setup);
  }

 private:
  double gain_;
};

/// A layer whose tasks do what its declarations forbid.
class WrongLayer final : public Layer {
 public:
  enum class Fault { late, early, hidden };
  static inline Fault fault = Fault::late;
  static std::shared_ptr<const Layer> read(TomlTable&) { return std::make_shared<WrongLayer>(); }

  std::string text() const override { return "wrong"; }
  std::string title() const override { return "wrong"; }
  void add_keys(nlohmann::ordered_json&, const NodeShape&, const NodeShape&) const override {}
  bool reads_x_backward() const override { return false; }
  std::unique_ptr<LayerTasks> make_tasks(const LayerSetup&) const override { return std::make_unique<Tasks>(); }

 private:
  class Tasks final : public LayerTasks {
    Ready append_forward(ForwardStep& step) override {
      if (fault == Fault::late) {
        step.gate();
        step.x();
      }
      if (fault == Fault::early) step.graph().add({.name = "early"}, [] {});
      step.y();
      return {};
    }
    void append_backward(BackwardStep& step) override { step.x(); }
  };
};

const bool added = [] {
  add_layer_kind({"square", SquareLayer::read});
  add_layer_kind({"wrong", WrongLayer::read});
  return true;
}();

std::string net_of(const std::string& type) {
  return net_head + "[[node]]\nname = 'a'\ntype = 'conv'\nout_channels = 20\nkernel = 3\npadding = 'same'\n" +
         "[[node]]\nname = 'q'\ntype = '" + type + "'\n" +
         "[[node]]\nname = 'r'\ntype = 'activation'\nactivation = 'tanh'\n" +
         "[[node]]\nname = 's'\ntype = 'add'\nfrom = ['r', 'a']\n" +
         "[[node]]\nname = 'logits'\ntype = 'conv'\nout_channels = 2\nkernel = 1\n";
}

}  // namespace

TEST_CASE("a kind of layer from outside is read, described and trained", "[layer]") {
  REQUIRE(added);
  const NetSpec spec = parse_net(net_of("square"), "net.toml");
  CHECK(spec.architecture().find("q <- a: square 1\n") != std::string::npos);
  CHECK(to_json(spec).find("\"square\"") != std::string::npos);
  Scheduler scheduler(2);
  Training on(net_of("square"), {});
  on.run(scheduler);
  for (const std::string name : {"q.gain", "a.weight"}) {
    Parameter* p = on.parameters().find(name);
    REQUIRE(p != nullptr);
    INFO(name);
    double slope = 0;
    for (index_t i = 0; i < p->value.elements(); ++i) slope += static_cast<double>(p->gradient.data()[i]);
    const std::vector<float> before(p->value.data(), p->value.data() + p->value.elements());
    constexpr double step = 1e-3;
    const auto loss_at = [&](double distance) {
      for (std::size_t i = 0; i < before.size(); ++i) {
        p->value.data()[i] = static_cast<float>(static_cast<double>(before[i]) + distance);
      }
      return on.run(scheduler);
    };
    const double measured = (loss_at(step) - loss_at(-step)) / (2 * step);
    std::copy(before.begin(), before.end(), p->value.data());
    CHECK(std::abs(measured - slope) < 0.02 * std::max(1.0, std::abs(slope)));
  }
}

TEST_CASE("a kind of layer from outside gives the same bits in every memory mode, on any number of threads",
          "[layer]") {
  const auto expected = results_of(net_of("square"), {.memory_mode = MemoryMode::separate});
  for (const MemoryMode mode : {MemoryMode::arena, MemoryMode::slab}) {
    CHECK(same_bits(results_of(net_of("square"), {.memory_mode = mode, .poison_freed = true}), expected));
    Scheduler scheduler(3);
    Training on(net_of("square"), {.memory_mode = mode});
    on.run(scheduler);
    CHECK(same_bits(on.results(), expected));
  }
}

TEST_CASE("kinds of layers have one name each", "[layer]") {
  CHECK_THROWS_AS(add_layer_kind({"conv", SquareLayer::read}), InvalidArgument);
  CHECK_THROWS_WITH(parse_net(net_of("sqare"), "net.toml"), Catch::Matchers::Contains("square"));
}

TEST_CASE("a step refuses bindings that the memory plan could not know", "[layer]") {
  WrongLayer::fault = WrongLayer::Fault::late;
  CHECK_THROWS_WITH(Training(net_of("wrong"), {}), Catch::Matchers::Contains("after the gate"));
  WrongLayer::fault = WrongLayer::Fault::early;
  CHECK_THROWS_WITH(Training(net_of("wrong"), {}), Catch::Matchers::Contains("before the gate"));
  WrongLayer::fault = WrongLayer::Fault::hidden;
  CHECK_THROWS_WITH(Training(net_of("wrong"), {}), Catch::Matchers::Contains("reads_x_backward() is false"));
}

}  // namespace convolume::nets
