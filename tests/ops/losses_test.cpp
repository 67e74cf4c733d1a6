#include "ops/losses.hpp"

#include "testing/sanitizers.hpp"

#include "tests/ops/ops_test.hpp"

namespace convolume::ops::test {
namespace {

/// A loss with its data.
template <class T>
struct Case {
  Case(LossOptions o, const Shape5& s, std::uint64_t seed, bool with_mask)
      : options(o),
        shape(s),
        logits(s),
        target(o.kind == LossKind::softmax_cross_entropy ? Shape5{s.n, 1, s.extent} : s),
        mask({s.n, 1, s.extent}),
        dlogits(s),
        masked(with_mask) {
    Random random(seed);
    logits.set_random(random, -3, 3);
    if (o.kind == LossKind::softmax_cross_entropy) {
      target.set([&](index_t, index_t, index_t) { return random.integer(0, s.c - 1); });
    } else {
      target.set([&](index_t, index_t, index_t v) {
        return v % 3 == 0 ? random.uniform(0, 1) : static_cast<double>(random.integer(0, 3) / 3);
      });
    }
    // The mask holds fractions too, because it is a weight.
    mask.set([&](index_t, index_t, index_t) { return 0.5 * static_cast<double>(random.integer(0, 2)); });
  }

  LossBindings<T> bindings() {
    return {logits.view(), target.view(), masked ? View<const T>(mask.view()) : View<const T>(), dlogits.view(), &loss};
  }
  double evaluate(int threads = 1) {
    run(threads,
        [&](TaskGraph& graph) { append_loss(graph, {}, options, bindings(), std::pmr::get_default_resource()); });
    return loss;
  }
  double m(index_t n, index_t v) const { return masked ? static_cast<double>(mask.at(n, 0, v)) : 1; }

  LossOptions options;
  Shape5 shape;
  Gapped<T> logits, target, mask, dlogits;
  bool masked;
  double loss = nan<double>;
};

/// Returns one channel of a case, with the same mask.
template <class T>
Case<T> channel_of(const Case<T>& on, index_t channel) {
  Case<T> one(on.options, {on.shape.n, 1, on.shape.extent}, 1, on.masked);
  one.logits.set([&](index_t n, index_t, index_t v) { return on.logits.at(n, channel, v); });
  one.target.set([&](index_t n, index_t, index_t v) { return on.target.at(n, channel, v); });
  one.mask.set([&](index_t n, index_t, index_t v) { return on.mask.at(n, 0, v); });
  return one;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Computes the loss by its definition, in double.
template <class T>
double reference(const Case<T>& on) {
  const LossKind kind = on.options.kind;
  const bool rebalance = on.options.rebalance;
  const double positive_weight = on.options.positive_weight, smooth = on.options.smooth;
  const auto x = [&](index_t n, index_t c, index_t v) { return static_cast<double>(on.logits.at(n, c, v)); };
  const auto t = [&](index_t n, index_t c, index_t v) { return static_cast<double>(on.target.at(n, c, v)); };
  if (kind == LossKind::dice) {
    double mean = 0;
    for (index_t c = 0; c < on.shape.c; ++c) {
      double overlap = 0, predicted = 0, labelled = 0;
      for (index_t n = 0; n < on.shape.n; ++n) {
        for (index_t v = 0; v < on.logits.voxels(); ++v) {
          const double p = on.m(n, v) * sigmoid(x(n, c, v)), label = on.m(n, v) * t(n, c, v);
          overlap += p * label;
          predicted += p;
          labelled += label;
        }
      }
      mean += (1 - (2 * overlap + smooth) / (predicted + labelled + smooth)) / static_cast<double>(on.shape.c);
    }
    return mean;
  }
  if (kind == LossKind::binary_cross_entropy && on.shape.c > 1) {
    double mean = 0;
    for (index_t c = 0; c < on.shape.c; ++c) mean += reference(channel_of(on, c)) / static_cast<double>(on.shape.c);
    return mean;
  }
  std::vector<double> counts(kind == LossKind::softmax_cross_entropy ? static_cast<std::size_t>(on.shape.c) : 2);
  const auto class_of = [&](index_t n, index_t c, index_t v) {
    if (kind == LossKind::softmax_cross_entropy) return static_cast<std::size_t>(t(n, c, v));
    return static_cast<std::size_t>(t(n, c, v) >= 0.5);
  };
  double total = 0;
  on.target.for_each([&](index_t n, index_t c, index_t v) {
    counts[class_of(n, c, v)] += on.m(n, v);
    total += on.m(n, v);
  });
  long double above = 0, below = 0;
  on.target.for_each([&](index_t n, index_t c, index_t v) {
    const std::size_t label = class_of(n, c, v);
    double w = on.m(n, v), l = 0;
    if (w == 0) return;
    if (kind != LossKind::square && rebalance) w *= total / (static_cast<double>(counts.size()) * counts[label]);
    if (kind == LossKind::binary_cross_entropy) {
      if (label == 1) w *= positive_weight;
      l = -t(n, c, v) * std::log(sigmoid(x(n, c, v))) - (1 - t(n, c, v)) * std::log(sigmoid(-x(n, c, v)));
    } else if (kind == LossKind::softmax_cross_entropy) {
      double sum = 0;
      for (index_t i = 0; i < on.shape.c; ++i) sum += std::exp(x(n, i, v));
      l = std::log(sum) - x(n, static_cast<index_t>(label), v);
    } else {
      l = std::pow(x(n, c, v) - t(n, c, v), 2);
    }
    above += static_cast<long double>(w) * static_cast<long double>(l);
    below += static_cast<long double>(w);
  });
  return below > 0 ? static_cast<double>(above / below) : 0;
}

const std::vector<LossOptions> all_options{
    {.kind = LossKind::binary_cross_entropy},
    {.kind = LossKind::binary_cross_entropy, .rebalance = true},
    {.kind = LossKind::binary_cross_entropy, .positive_weight = 3},
    {.kind = LossKind::binary_cross_entropy, .rebalance = true, .positive_weight = 0.5},
    {.kind = LossKind::softmax_cross_entropy},
    {.kind = LossKind::softmax_cross_entropy, .rebalance = true},
    {.kind = LossKind::square},
    {.kind = LossKind::dice},
    {.kind = LossKind::dice, .smooth = 0}};

}  // namespace

TEMPLATE_TEST_CASE("losses match their definition", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    for (const LossOptions& options : all_options) {
      for (const bool masked : {false, true}) {
        for (const Shape5& shape : {Shape5{1, 1, {1, 1, 1}}, Shape5{2, 3, {2, 3, 7}}, Shape5{1, 5, {3, 1, 33}}}) {
          INFO(name_of(options.kind) << ", masked " << masked << ", shape " << to_string(shape));
          Case<T> on(options, shape, 23, masked);
          on.evaluate();
          const double expected = reference(on);
          REQUIRE(close(on.loss, expected, 16 * epsilon<T>, 1));
          REQUIRE(on.dlogits.gaps_untouched());
        }
      }
    }
  });
}

TEST_CASE("gradients of losses match central differences", "[ops]") {
  on_every_target([] {
    for (const LossOptions& options : all_options) {
      for (const bool masked : {false, true}) {
        INFO(name_of(options.kind) << ", masked " << masked);
        Case<double> on(options, {2, 3, {2, 2, 5}}, 24, masked);
        on.evaluate();
        on.logits.for_each([&](index_t n, index_t c, index_t v) {
          double& x = on.logits.at(n, c, v);
          const double at = x, h = 1e-5;
          x = at + h;
          const double above = reference(on);
          x = at - h;
          const double below = reference(on);
          x = at;
          REQUIRE(close(on.dlogits.at(n, c, v), (above - below) / (2 * h), 1e-8, 1));
          if (on.m(n, v) == 0) REQUIRE(on.dlogits.at(n, c, v) == 0);
        });
      }
    }
  });
}

TEST_CASE("float gradients of losses match double ones", "[ops]") {
  on_every_target([] {
    for (const LossOptions& options : all_options) {
      Case<float> on(options, {2, 3, {2, 3, 11}}, 25, true);
      Case<double> wide(options, {2, 3, {2, 3, 11}}, 25, true);
      wide.logits.set([&](index_t n, index_t c, index_t v) { return on.logits.at(n, c, v); });
      wide.target.set([&](index_t n, index_t c, index_t v) { return on.target.at(n, c, v); });
      on.evaluate();
      wide.evaluate();
      bool all = true;
      on.dlogits.for_each([&](index_t n, index_t c, index_t v) {
        all = all && close(static_cast<double>(on.dlogits.at(n, c, v)), wide.dlogits.at(n, c, v), 1e-6, 0.01);
      });
      REQUIRE(all);
    }
  });
}

TEMPLATE_TEST_CASE("losses give the same bits on any number of threads and run again", "[ops]", float, double) {
  using T = TestType;
  if (convolume::test::sanitized && sizeof(T) == 8) return;  // float covers as many bytes and tasks
  for (const LossOptions& options : all_options) {
    const Shape5 shape{2, 2, {5, 128, 150}};  // several Z ranges
    Case<T> on(options, shape, 26, true);
    const double loss = on.evaluate(1);
    const Gapped<T> gradient(on.dlogits);
    for (const int threads : {2, 3}) {
      on.dlogits.set([](index_t, index_t, index_t) { return nan<T>; });
      REQUIRE(on.evaluate(threads) == loss);
      REQUIRE(on.dlogits.same_bits(gradient));
    }
    TaskGraph graph;
    append_loss(graph, {}, options, on.bindings(), std::pmr::get_default_resource());
    Scheduler scheduler(2);
    for (int i = 0; i < 2; ++i) {
      on.loss = nan<double>;
      graph.run(scheduler);
      REQUIRE(on.loss == loss);
    }
  }
}

TEMPLATE_TEST_CASE("every task of a loss waits for the labels", "[ops]", float, double) {
  for (const LossOptions& options : all_options) {
    INFO(name_of(options.kind));
    Case<TestType> on(options, {2, 2, {5, 16, 16}}, 28, true);
    TaskGraph graph;
    const TaskId labels = graph.add({.name = "labels"}, [] {});
    append_loss(graph, {}, options, on.bindings(), std::pmr::get_default_resource(), Ready::all_of({labels}));
    for (TaskId task = labels + 1; task < static_cast<TaskId>(graph.size()); ++task) CHECK(graph.ordered(labels, task));
  }
}

TEMPLATE_TEST_CASE("an all-zero mask gives zero, whatever it hides", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    for (const LossOptions& options : all_options) {
      INFO(name_of(options.kind));
      Case<T> on(options, {1, 2, {2, 3, 7}}, 27, true);
      on.mask.set([](index_t, index_t, index_t) { return 0; });
      on.logits.set([](index_t, index_t, index_t) { return nan<T>; });
      on.target.set([](index_t, index_t, index_t) { return 255; });
      REQUIRE(on.evaluate() == 0);
      bool all = true;
      on.dlogits.for_each([&](index_t n, index_t c, index_t v) { all = all && on.dlogits.at(n, c, v) == 0; });
      REQUIRE(all);
    }
  });
}

TEMPLATE_TEST_CASE("losses are stable for large logits and propagate NaN", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    for (const LossOptions& options : all_options) {
      INFO(name_of(options.kind));
      Case<T> on(options, {1, 2, {1, 3, 7}}, 28, false);
      on.logits.set([](index_t, index_t c, index_t v) { return (v % 2 == c ? 1 : -1) * 500; });
      REQUIRE(std::isfinite(on.evaluate()));
      bool finite = true;
      on.dlogits.for_each(
          [&](index_t n, index_t c, index_t v) { finite = finite && std::isfinite(on.dlogits.at(n, c, v)); });
      REQUIRE(finite);
      for (const index_t channel : {0, 1}) {
        Case<T> bad(options, {1, 2, {1, 3, 7}}, 28, false);
        bad.logits.at(0, channel, 20) = nan<T>;
        REQUIRE(std::isnan(bad.evaluate()));
        REQUIRE(std::isnan(bad.dlogits.at(0, channel, 20)));
      }
    }
  });
}

TEST_CASE("a sigmoid loss of several channels is the mean of the losses of each channel", "[ops]") {
  for (const LossOptions& options : all_options) {
    if (options.kind != LossKind::binary_cross_entropy && options.kind != LossKind::dice) continue;
    for (const bool masked : {false, true}) {
      INFO(name_of(options.kind) << ", rebalance " << options.rebalance << ", masked " << masked);
      Case<double> on(options, {2, 3, {2, 3, 7}}, 32, masked);
      // One channel has few positives, and one has none.
      on.target.set([](index_t n, index_t c, index_t v) { return c == 0 ? v % 2 : c == 1 ? n == 0 && v == 9 : 0; });
      on.evaluate();
      double mean = 0;
      for (index_t c = 0; c < 3; ++c) {
        Case<double> one = channel_of(on, c);
        mean += one.evaluate() / 3;
        one.dlogits.for_each([&](index_t n, index_t, index_t v) {
          REQUIRE(close(on.dlogits.at(n, c, v), one.dlogits.at(n, 0, v) / 3, 1e-14, 1));
        });
      }
      CHECK(close(on.loss, mean, 1e-14, 1));
    }
  }
}

TEST_CASE("a class that is absent has no part in the balance", "[ops]") {
  Case<double> on({.kind = LossKind::binary_cross_entropy, .rebalance = true}, {1, 1, {1, 2, 5}}, 29, false);
  on.target.set([](index_t, index_t, index_t) { return 1; });
  const double balanced = on.evaluate();
  on.options.rebalance = false;
  REQUIRE(close(balanced, on.evaluate(), 1e-14));
}

TEST_CASE("labels that are no class index end the run", "[ops]") {
  for (const float bad : {3.0F, -1.0F, 1.5F, nan<float>, 1e30F}) {
    Case<float> on({.kind = LossKind::softmax_cross_entropy}, {1, 3, {2, 3, 5}}, 30, true);
    on.mask.set([](index_t, index_t, index_t) { return 1; });
    on.target.at(0, 0, 1 * 15 + 2 * 5 + 3) = bad;
    REQUIRE_THROWS_WITH(on.evaluate(), Catch::Contains("voxel (1, 2, 3)") && Catch::Contains("[0, 3)"));
    REQUIRE_THROWS_AS(on.evaluate(), InvalidArgument);
    on.mask.at(0, 0, 1 * 15 + 2 * 5 + 3) = 0;
    REQUIRE(std::isfinite(on.evaluate()));
  }
}

TEST_CASE("losses refuse shapes that do not fit", "[ops]") {
  Case<float> on({.kind = LossKind::softmax_cross_entropy}, {2, 3, {2, 3, 5}}, 31, true);
  LossBindings<float> bindings = on.bindings();
  validate(on.options, bindings);
  REQUIRE_THROWS_AS(validate(LossOptions{.kind = LossKind::square}, bindings), ShapeMismatch);
  Tensor<float> blocked(on.shape, Layout::blocked);
  bindings.logits = blocked.view();
  REQUIRE_THROWS_WITH(validate(on.options, bindings), Catch::Contains("layout of logits is blocked"));
  bindings = on.bindings();
  bindings.mask = bindings.logits;
  REQUIRE_THROWS_AS(validate(on.options, bindings), ShapeMismatch);
  bindings.mask = {};
  bindings.loss = nullptr;
  REQUIRE_THROWS_AS(validate(on.options, bindings), InvalidArgument);
  bindings = on.bindings();
  bindings.dlogits.shape.n = 1;
  REQUIRE_THROWS_AS(validate(on.options, bindings), ShapeMismatch);
  bindings = on.bindings();
  REQUIRE_THROWS_AS(validate(LossOptions{.kind = LossKind::softmax_cross_entropy, .smooth = -1}, bindings),
                    InvalidArgument);
}

}  // namespace convolume::ops::test
