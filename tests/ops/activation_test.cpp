#include "ops/activation.hpp"

#include "tests/ops/ops_test.hpp"

namespace convolume::ops::test {
namespace {

using Kind = Activation::Kind;
const std::vector<Activation> activations{{Kind::none, 0.01},    {Kind::relu, 0.01}, {Kind::leaky_relu, 0.125},
                                          {Kind::sigmoid, 0.01}, {Kind::tanh, 0.01}, {Kind::softsign, 0.01}};

double reference(const Activation& act, double x) {
  switch (act.kind) {
    case Kind::none:
      return x;
    case Kind::relu:
      return x <= 0 ? 0 : x;
    case Kind::leaky_relu:
      return x > 0 ? x : act.slope * x;
    case Kind::sigmoid:
      return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
    case Kind::tanh:
      return std::tanh(x);
    case Kind::softsign:
      return std::isinf(x) ? (x < 0 ? -1 : 1) : x / (1 + std::abs(x));
  }
  return 0;
}

double reference_gradient(const Activation& act, double y) {
  switch (act.kind) {
    case Kind::none:
      return 1;
    case Kind::relu:
      return y <= 0 ? 0 : 1;
    case Kind::leaky_relu:
      return y > 0 ? 1 : act.slope;
    case Kind::sigmoid:
      return y * (1 - y);
    case Kind::tanh:
      return 1 - y * y;
    case Kind::softsign:
      return (1 - std::abs(y)) * (1 - std::abs(y));
  }
  return 0;
}

}  // namespace

TEMPLATE_TEST_CASE("activations match a double reference", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    Random random(1);
    for (const Activation& act : activations) {
      INFO("activation " << name_of(act.kind));
      for (const index_t n : {1, 2, 3, 7, 16, 31, 33, 101}) {
        auto x = random.uniform<T>(n, -25, 25);
        if (n > 100) {
          const std::vector<double> special{0,    -0.0, 1e-30, -1e-30, 1e-3,  -1e-3,    88,        -88,        104.5,
                                            -105, 1000, -1000, 1e30,   -1e30, HUGE_VAL, -HUGE_VAL, nan<double>};
          for (std::size_t i = 0; i < special.size(); ++i) x[3 * i] = static_cast<T>(special[i]);
        }
        std::vector<T> y(x.size(), nan<T>);
        activate(act, x.data(), y.data(), n);
        bool all = true;
        for (std::size_t i = 0; i < x.size(); ++i) {
          const bool good =
              close(static_cast<double>(y[i]), reference(act, static_cast<double>(x[i])), 8 * epsilon<T>, 1e-36);
          if (!good) UNSCOPED_INFO("x " << x[i] << " gives " << y[i]);
          all = all && good;
        }
        REQUIRE(all);

        auto in_place = x;
        activate(act, in_place.data(), in_place.data(), n);
        REQUIRE(same_bits(in_place, y));
      }
    }
  });
}

TEMPLATE_TEST_CASE("the softmax matches a double reference", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    for (const index_t classes : {1, 2, 3, 17}) {
      for (const index_t n : {1, 3, 16, 37}) {
        const index_t x_stride = n + 5, p_stride = n + 2;
        std::vector<T> x(static_cast<std::size_t>(classes * x_stride)),
            p(static_cast<std::size_t>(classes * p_stride), std::numeric_limits<T>::quiet_NaN());
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(40 * std::sin(static_cast<double>(i) * 1.7));
        softmax(x.data(), x_stride, p.data(), p_stride, n, classes);
        for (index_t i = 0; i < n; ++i) {
          double most = -1e300, sum = 0;
          const auto logit = [&](index_t c) {
            return static_cast<double>(x[static_cast<std::size_t>(c * x_stride + i)]);
          };
          for (index_t c = 0; c < classes; ++c) most = std::max(most, logit(c));
          for (index_t c = 0; c < classes; ++c) sum += std::exp(logit(c) - most);
          for (index_t c = 0; c < classes; ++c) {
            const double expected = std::exp(logit(c) - most) / sum;
            CHECK(static_cast<double>(p[static_cast<std::size_t>(c * p_stride + i)]) ==
                  Approx(expected).epsilon(sizeof(T) == 4 ? 2e-5 : 1e-13).margin(1e-30));
          }
        }
        std::vector<T> in_place = x;
        softmax(in_place.data(), x_stride, in_place.data(), x_stride, n, classes);
        CHECK(in_place[0] == p[0]);
        in_place = x;
        in_place[0] = std::numeric_limits<T>::quiet_NaN();
        softmax(in_place.data(), x_stride, in_place.data(), x_stride, n, classes);
        for (index_t c = 0; c < classes; ++c) CHECK(std::isnan(in_place[static_cast<std::size_t>(c * x_stride)]));
      }
    }
  });
}

TEMPLATE_TEST_CASE("the bits of an activation do not depend on where a chunk begins", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    Random random(2);
    const index_t n = 75;
    const auto x = random.uniform<T>(n, -6, 6), dy = random.uniform<T>(n, -1, 1);
    for (const Activation& act : activations) {
      std::vector<T> y(x.size()), dz(x.size());
      activate(act, x.data(), y.data(), n);
      activation_gradient(act, y.data(), dy.data(), dz.data(), n);
      for (const index_t chunk : {1, 5, 17, 32}) {
        std::vector<T> pieces(x.size()), gradients(x.size());
        for (index_t i = 0; i < n; i += chunk) {
          const index_t count = std::min(chunk, n - i);
          activate(act, x.data() + i, pieces.data() + i, count);
          activation_gradient(act, pieces.data() + i, dy.data() + i, gradients.data() + i, count);
        }
        REQUIRE(same_bits(pieces, y));
        REQUIRE(same_bits(gradients, dz));
      }
    }
  });
}

TEMPLATE_TEST_CASE("gradients of activations follow from the output", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    Random random(3);
    for (const Activation& act : activations) {
      INFO("activation " << name_of(act.kind));
      const index_t n = 83;
      const auto x = random.uniform<T>(n, -4, 4), dy = random.uniform<T>(n, -1, 1);
      std::vector<T> y(x.size()), dz(x.size(), nan<T>), sum(x.size(), T{2});
      activate(act, x.data(), y.data(), n);
      activation_gradient(act, y.data(), dy.data(), dz.data(), n);
      activation_gradient(act, y.data(), dy.data(), sum.data(), n, true);
      auto in_place = dy;
      activation_gradient(act, y.data(), in_place.data(), in_place.data(), n);
      REQUIRE(same_bits(in_place, dz));
      bool all = true;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto at = static_cast<double>(x[i]), g = static_cast<double>(dy[i]);
        const double from_output = g * reference_gradient(act, static_cast<double>(y[i]));
        const double h = 1e-5, difference = g * (reference(act, at + h) - reference(act, at - h)) / (2 * h);
        all = all && close(static_cast<double>(dz[i]), from_output, 8 * epsilon<T>, 1);
        all = all && close(static_cast<double>(dz[i]), difference, 1e-6, 1);
        all = all && close(static_cast<double>(sum[i]), 2 + from_output, 8 * epsilon<T>, 1);
      }
      REQUIRE(all);
    }
  });
}

TEMPLATE_TEST_CASE("activation tasks serve strided channels", "[ops]", float, double) {
  using T = TestType;
  const Shape5 shape{2, 3, {3, 5, 7}};
  Random random(4);
  Gapped<T> x(shape), y(shape), dy(shape), dx(shape);
  x.set_random(random);
  dy.set_random(random);
  dx.set([](index_t, index_t, index_t) { return 1; });
  const Activation act{Kind::relu, 0.01};
  run(3, [&](TaskGraph& graph) {
    const Ready done = append_activation_forward(graph, {}, x.view(), y.view(), act);
    REQUIRE(done.tasks().size() == 6);
    append_activation_backward(graph, done, y.view(), dy.view(), dx.view(), act, true);
  });
  bool all = true;
  x.for_each([&](index_t n, index_t c, index_t v) {
    const T positive = x.at(n, c, v) > 0 ? x.at(n, c, v) : T{0};
    all = all && y.at(n, c, v) == positive && dx.at(n, c, v) == 1 + (positive > 0 ? dy.at(n, c, v) : T{0});
  });
  REQUIRE(all);
  REQUIRE(y.gaps_untouched());
  REQUIRE(dx.gaps_untouched());
}

TEMPLATE_TEST_CASE("activations of blocked tensors are those of plain ones", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    Random random(23);
    for (const Activation& act : activations) {
      for (const index_t channels : channel_counts) {
        INFO("activation " << name_of(act.kind) << ", " << channels << " channels");
        const Shape5 shape{2, channels, {2, 5, 9}};
        Gapped<T> x(shape), y(shape), dy(shape), dx(shape);
        Gapped<T> bx(shape, Layout::blocked), by(bx), bdy(bx), bdx(bx), in_place(bx);
        x.set_random(random, -4, 4);
        dy.set_random(random);
        bx.set_from(x);
        bdy.set_from(dy);
        in_place.set_from(x);
        for (const bool add : {false, true}) {
          run(1, [&](TaskGraph& graph) {
            const Ready plain = append_activation_forward(graph, {}, x.view(), y.view(), act);
            append_activation_backward(graph, plain, y.view(), dy.view(), dx.view(), act, add);
            const Ready blocked = append_activation_forward(graph, {}, bx.view(), by.view(), act);
            append_activation_backward(graph, blocked, by.view(), bdy.view(), bdx.view(), act, add);
          });
          REQUIRE(by.same_elements(y));
          REQUIRE(bdx.same_elements(dx));
          REQUIRE(by.clean());
          REQUIRE(bdx.clean());
        }
        run(1, [&](TaskGraph& graph) { append_activation_forward(graph, {}, in_place.view(), in_place.view(), act); });
        REQUIRE(in_place.same_bits(by));
      }
    }
  });
}

TEMPLATE_TEST_CASE("activations of many slabs wait for their planes", "[ops]", float, double) {
  using T = TestType;
  const Shape5 shape{1, 17, many_slabs};
  Random random(24);
  Tensor<T> x(shape, Layout::blocked), y(shape, Layout::blocked);
  for (index_t i = 0; i < x.elements(); ++i) x.data()[i] = static_cast<T>(random.uniform(-1, 1));
  y.fill(nan<T>);
  TaskGraph graph;
  const Producers producers(graph, shape, View<T>::lanes);
  const Ready done = append_activation_forward<T>(graph, producers.ready, x, y, {Kind::sigmoid, 0.01});
  for (index_t plane = 0; plane < shape.extent.z; ++plane) {
    for (index_t z = 0; z < shape.extent.z; ++z) {
      REQUIRE(waits(graph, done, 16, plane, producers.of(0, 16 / View<T>::lanes, z)) == (z == plane));
      REQUIRE_FALSE(waits(graph, done, 16, plane, producers.of(0, 0, z)));
    }
  }
  Scheduler scheduler(2);
  graph.run(scheduler);
  bool all = true;
  const View<T> from = x.view(), to = y.view();
  for (index_t c = 0; c < to.blocks() * View<T>::lanes; ++c) {
    for (index_t v = 0; v < shape.extent.volume(); ++v) {
      const auto in = static_cast<double>(from.channel(0, c)[v * View<T>::lanes]);
      const auto out = static_cast<double>(to.channel(0, c)[v * View<T>::lanes]);
      all = all && (c < shape.c ? close(out, reference({Kind::sigmoid, 0.01}, in), 8 * epsilon<T>) : out == 0);
    }
  }
  REQUIRE(all);
}

TEST_CASE("activation tasks refuse what does not fit", "[ops]") {
  Tensor<float> x({1, 2, {2, 2, 2}}), y({1, 2, {2, 2, 3}});
  TaskGraph graph;
  REQUIRE_THROWS_AS(append_activation_forward(graph, {}, x.view(), y.view(), {}), ShapeMismatch);
  REQUIRE_THROWS_AS(append_activation_forward(graph, {}, View<const float>(), y.view(), {}), InvalidArgument);
  REQUIRE_THROWS_AS(append_activation_forward(graph, {}, x.view(), x.view(), {Kind::leaky_relu, 0}), InvalidArgument);
  Tensor<float> blocked(x.shape(), Layout::blocked);
  REQUIRE_THROWS_AS(append_activation_forward(graph, {}, x.view(), blocked.view(), {}), ShapeMismatch);
  REQUIRE_THROWS_WITH(append_activation_backward(graph, {}, x.view(), blocked.view(), x.view(), {}, false),
                      Catch::Contains("layout of dy is blocked, but it must be plain"));
  View<float> rows = x.view();
  rows.stride[3] = 3;
  REQUIRE_THROWS_AS(append_activation_forward(graph, {}, x.view(), rows, {}), InvalidArgument);
}

}  // namespace convolume::ops::test
