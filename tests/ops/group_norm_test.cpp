#include "ops/group_norm.hpp"

#include "testing/sanitizers.hpp"

#include "ops/activation.hpp"
#include "tests/ops/ops_test.hpp"

namespace convolume::ops::test {
namespace {

/// A normalisation with its data, and a plain double reference for the forward pass of T.
template <class T>
struct Case {
  Case(const Shape5& s, const GroupNorm& n, std::uint64_t seed, double offset = 0, Layout layout = Layout::plain)
      : shape(s), norm(n), x(s, layout), y(s, layout), dy(s, layout), dx(s, layout) {
    Random random(seed);
    x.set_random(random, offset - 1, offset + 1);
    dy.set_random(random);
    gamma = random.uniform<T>(s.c, 0.5, 1.5);
    beta = random.uniform<T>(s.c, -1, 1);
    dgamma.assign(gamma.size(), nan<T>);
    dbeta.assign(gamma.size(), nan<T>);
    mean.assign(static_cast<std::size_t>(s.n * n.groups), nan<double>);
    rstd = mean;
  }

  void forward(TaskGraph& graph, const Ready& ready = {}) {
    done = append_group_norm_forward(graph, ready, x.view(), gamma.data(), beta.data(), y.view(),
                                     {mean.data(), rstd.data()}, norm, std::pmr::get_default_resource());
  }
  void backward(TaskGraph& graph, bool add_dx = false, bool add_parameters = false) {
    append_group_norm_backward(graph, done, x.view(), gamma.data(), beta.data(), {mean.data(), rstd.data()}, dy.view(),
                               dx.view(), add_dx, dgamma.data(), dbeta.data(), add_parameters, norm,
                               std::pmr::get_default_resource());
  }

  double reference(index_t n, index_t c, index_t v) const {
    const index_t width = shape.c / norm.groups, begin = c / width * width;
    long double total = 0, squares = 0;
    const auto count = static_cast<long double>(width * x.voxels());
    for (index_t i = begin; i < begin + width; ++i) {
      for (index_t u = 0; u < x.voxels(); ++u) total += static_cast<long double>(x.at(n, i, u));
    }
    const long double middle = total / count;
    for (index_t i = begin; i < begin + width; ++i) {
      for (index_t u = 0; u < x.voxels(); ++u) squares += std::pow(static_cast<long double>(x.at(n, i, u)) - middle, 2);
    }
    const auto deviation = std::sqrt(squares / count + static_cast<long double>(norm.epsilon));
    const auto at = static_cast<std::size_t>(c);
    return static_cast<double>((static_cast<long double>(x.at(n, c, v)) - middle) / deviation *
                                   static_cast<long double>(gamma[at]) +
                               static_cast<long double>(beta[at]));
  }

  Shape5 shape;
  GroupNorm norm;
  Gapped<T> x, y, dy, dx;
  std::vector<T> gamma, beta, dgamma, dbeta;
  std::vector<double> mean, rstd;
  Ready done;
};

/// Returns Σ y · dy in double. The backward pass computes the gradient of this function.
double weighted_sum(Case<double>& on) {
  run(1, [&](TaskGraph& graph) { on.forward(graph); });
  double sum = 0;
  on.y.for_each([&](index_t n, index_t c, index_t v) { sum += on.y.at(n, c, v) * on.dy.at(n, c, v); });
  return sum;
}

}  // namespace

TEMPLATE_TEST_CASE("group norm matches a reference", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    for (const index_t groups : {1, 2, 6}) {
      for (const double offset : {0.0, 100.0}) {
        Case<T> on({2, 6, {2, 3, 5}}, {.groups = groups, .epsilon = 1e-5}, 19, offset);
        run(1, [&](TaskGraph& graph) { on.forward(graph); });
        bool all = true;
        on.y.for_each([&](index_t n, index_t c, index_t v) {
          all = all && close(static_cast<double>(on.y.at(n, c, v)), on.reference(n, c, v), 16 * epsilon<T>,
                             sizeof(T) == 4 ? 1 : 30);
        });
        REQUIRE(all);
        REQUIRE(on.y.gaps_untouched());
      }
    }
  });
}

TEMPLATE_TEST_CASE("group norm of blocked tensors matches a reference", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    const std::vector<std::pair<index_t, index_t>> splits{{1, 1},  {3, 1},   {3, 3},   {8, 2},  {15, 5},
                                                          {16, 1}, {16, 4},  {16, 16}, {17, 1}, {30, 6},
                                                          {30, 2}, {33, 11}, {33, 3},  {33, 33}};
    for (const auto& [channels, groups] : splits) {
      for (const double offset : {0.0, 100.0}) {
        INFO(channels << " channels in " << groups << " groups");
        const Shape5 shape{2, channels, {2, 3, 5}};
        const GroupNorm norm{.groups = groups, .epsilon = 1e-5};
        Case<T> on(shape, norm, 28, offset, Layout::blocked), plain(shape, norm, 28, offset);
        run(2, [&](TaskGraph& graph) {
          on.forward(graph);
          on.backward(graph);
          plain.forward(graph);
          plain.backward(graph);
        });
        // The double reference loses digits when it subtracts the offset of 100, so double needs a larger tolerance.
        const double scale = sizeof(T) == 4 ? 1 : 30;
        bool all = true;
        on.y.for_each([&](index_t n, index_t c, index_t v) {
          all = all && close(static_cast<double>(on.y.at(n, c, v)), on.reference(n, c, v), 16 * epsilon<T>, scale);
          all = all && close(static_cast<double>(on.dx.at(n, c, v)), static_cast<double>(plain.dx.at(n, c, v)),
                             64 * epsilon<T>, scale);
        });
        for (std::size_t c = 0; c < on.dgamma.size(); ++c) {
          all = all && close(static_cast<double>(on.dgamma[c]), static_cast<double>(plain.dgamma[c]), 64 * epsilon<T>,
                             4 * scale);
          all = all && close(static_cast<double>(on.dbeta[c]), static_cast<double>(plain.dbeta[c]), 64 * epsilon<T>,
                             4 * scale);
        }
        REQUIRE(all);
        REQUIRE(on.y.clean());
        REQUIRE(on.dx.clean());
      }
    }
  });
}

TEMPLATE_TEST_CASE("group norm of many slabs", "[ops]", float, double) {
  using T = TestType;
  if (convolume::test::sanitized && sizeof(T) == 8) return;  // float covers as many bytes and tasks
  std::vector<std::pair<index_t, index_t>> splits{{18, 3}, {18, 18}, {5, 1}};
  if (convolume::test::sanitized) splits.resize(1);
  for (const Layout layout : both_layouts) {
    for (const auto& [channels, groups] : splits) {
      INFO(channels << " channels in " << groups << " groups, " << name_of(layout));
      const Extent3 extent = layout == Layout::plain ? Extent3{5, 111, 121} : many_slabs;
      const auto make = [&, c = channels, g = groups] {
        return Case<T>({2, c, extent}, {.groups = g, .epsilon = 1e-5}, 29, 3, layout);
      };
      const auto pass = [](Case<T>& on, int threads) {
        run(threads, [&](TaskGraph& graph) {
          on.forward(graph);
          REQUIRE(graph.size() > static_cast<std::size_t>(6 * on.x.view().blocks()));
          on.backward(graph);
        });
      };
      Case<T> first = make();
      pass(first, 1);
      for (const int threads : {8, 2}) {
        if (convolume::test::sanitized && threads == 2) continue;
        Case<T> other = make();
        pass(other, threads);
        REQUIRE(other.y.same_bits(first.y));
        REQUIRE(other.dx.same_bits(first.dx));
        REQUIRE(same_bits(other.dgamma, first.dgamma));
        REQUIRE(same_bits(other.dbeta, first.dbeta));
        REQUIRE(same_bits(other.mean, first.mean));
        REQUIRE(same_bits(other.rstd, first.rstd));
      }
      REQUIRE(first.y.clean());
      REQUIRE(first.dx.clean());
      // In every group, (y - beta) / gamma has mean 0 and variance 1, and dx is orthogonal to 1 and to y.
      const index_t width = channels / groups;
      for (index_t n = 0; n < 2; ++n) {
        for (index_t begin = 0; begin < channels; begin += width) {
          double sum = 0, squares = 0, gradient = 0, product = 0, size = 0;
          for (index_t c = begin; c < begin + width; ++c) {
            const auto at = static_cast<std::size_t>(c);
            const auto count = static_cast<double>(width) * static_cast<double>(first.x.voxels());
            for (index_t v = 0; v < first.x.voxels(); ++v) {
              const double h = (static_cast<double>(first.y.at(n, c, v)) - static_cast<double>(first.beta[at])) /
                               static_cast<double>(first.gamma[at]);
              const auto g = static_cast<double>(first.dx.at(n, c, v));
              sum += h / count;
              squares += h * h / count;
              gradient += g / count;
              product += g * h / count;
              size += g * g / count;
            }
          }
          REQUIRE(std::abs(sum) < 64 * epsilon<T>);
          REQUIRE(std::abs(squares - 1) < 1e-4);  // because of epsilon
          REQUIRE(size > 0.1);
          REQUIRE(std::abs(gradient) < 64 * epsilon<T>);
          REQUIRE(std::abs(product) < 1e-4);
        }
      }
    }
  }
}

TEST_CASE("gradients of group norm match central differences", "[ops]") {
  on_every_target([] {
    for (const auto& [groups, layout] : std::vector<std::pair<index_t, Layout>>{
             {1, Layout::plain}, {2, Layout::plain}, {4, Layout::plain}, {2, Layout::blocked}}) {
      Case<double> on({2, 4, {1, 2, 3}}, {.groups = groups, .epsilon = 1e-3}, 20, 0, layout);
      run(1, [&](TaskGraph& graph) {
        on.forward(graph);
        on.backward(graph);
      });
      const double h = 1e-5;
      const auto difference = [&](double& value) {
        const double at = value;
        value = at + h;
        const double above = weighted_sum(on);
        value = at - h;
        const double below = weighted_sum(on);
        value = at;
        return (above - below) / (2 * h);
      };
      on.x.for_each([&](index_t n, index_t c, index_t v) {
        REQUIRE(close(on.dx.at(n, c, v), difference(on.x.at(n, c, v)), 1e-7, 1));
      });
      for (std::size_t c = 0; c < 4; ++c) {
        REQUIRE(close(on.dgamma[c], difference(on.gamma[c]), 1e-7, 1));
        REQUIRE(close(on.dbeta[c], difference(on.beta[c]), 1e-7, 1));
      }
      REQUIRE(on.dx.gaps_untouched());
    }
  });
}

TEMPLATE_TEST_CASE("group norm gives the same bits on any number of threads, in place and added", "[ops]", float,
                   double) {
  using T = TestType;
  for (const index_t groups : {1, 2, 4}) {
    const auto make = [&] { return Case<T>({2, 4, {3, 7, 33}}, {.groups = groups, .epsilon = 1e-5}, 21); };
    Case<T> first = make();
    run(1, [&](TaskGraph& graph) {
      first.forward(graph);
      first.backward(graph);
    });
    for (const int threads : {2, 3}) {
      Case<T> other = make();
      run(threads, [&](TaskGraph& graph) {
        other.forward(graph);
        other.backward(graph);
      });
      REQUIRE(other.y.same_bits(first.y));
      REQUIRE(other.dx.same_bits(first.dx));
      REQUIRE(same_bits(other.dgamma, first.dgamma));
      REQUIRE(same_bits(other.dbeta, first.dbeta));
      REQUIRE(same_bits(other.mean, first.mean));
      REQUIRE(same_bits(other.rstd, first.rstd));
    }

    Case<T> added = make();
    added.dx.set([](index_t, index_t, index_t) { return 1; });
    added.dgamma.assign(4, T{1});
    added.dbeta.assign(4, T{1});
    run(2, [&](TaskGraph& graph) {
      added.forward(graph);
      added.backward(graph, true, true);
    });
    bool all = true;
    added.dx.for_each(
        [&](index_t n, index_t c, index_t v) { all = all && added.dx.at(n, c, v) == 1 + first.dx.at(n, c, v); });
    for (std::size_t c = 0; c < 4; ++c) {
      all =
          all && close(static_cast<double>(added.dgamma[c]), 1 + static_cast<double>(first.dgamma[c]), 4 * epsilon<T>);
      all = all && close(static_cast<double>(added.dbeta[c]), 1 + static_cast<double>(first.dbeta[c]), 4 * epsilon<T>);
    }
    REQUIRE(all);

    Case<T> in_place = make();
    run(3, [&](TaskGraph& graph) {
      append_group_norm_forward(graph, {}, in_place.x.view(), in_place.gamma.data(), in_place.beta.data(),
                                in_place.x.view(), {in_place.mean.data(), in_place.rstd.data()}, in_place.norm,
                                std::pmr::get_default_resource());
    });
    REQUIRE(in_place.x.same_bits(first.y));
  }
}

/// Compares a norm that computes an activation with the two operations one after the other, in every bit.
template <class T>
void check_activation(const Activation& activation, Layout layout, index_t groups, const Extent3& extent) {
  const Shape5 shape{2, 20, extent};
  Case<T> two(shape, {.groups = groups}, 31, 0.5, layout), one(shape, {.groups = groups}, 31, 0.5, layout);
  one.norm.activation = activation;
  Gapped<T> y(shape, layout);
  run(3, [&](TaskGraph& graph) {
    two.forward(graph);
    const Ready done = append_activation_forward<T>(graph, two.done, two.y.view(), y.view(), activation);
    const Ready before =
        append_activation_backward<T>(graph, done, y.view(), two.dy.view(), two.dy.view(), activation, false);
    append_group_norm_backward<T>(graph, before, two.x.view(), two.gamma.data(), two.beta.data(),
                                  {two.mean.data(), two.rstd.data()}, two.dy.view(), two.dx.view(), false,
                                  two.dgamma.data(), two.dbeta.data(), false, two.norm,
                                  std::pmr::get_default_resource());
  });
  run(3, [&](TaskGraph& graph) {
    one.forward(graph);
    append_group_norm_backward<T>(graph, one.done, one.x.view(), one.gamma.data(), one.beta.data(),
                                  {one.mean.data(), one.rstd.data()}, one.dy.view(), one.dy.view(), false,
                                  one.dgamma.data(), one.dbeta.data(), false, one.norm,
                                  std::pmr::get_default_resource());
  });
  CHECK(one.y.same_bits(y));
  CHECK(one.y.pads_zero());
  CHECK(one.y.gaps_untouched());
  CHECK(one.dy.same_bits(two.dx));
  CHECK(one.dy.pads_zero());
  CHECK(one.dgamma == two.dgamma);
  CHECK(one.dbeta == two.dbeta);
}

TEST_CASE("a norm with an activation has the bits of a norm and an activation", "[ops]") {
  using Kind = Activation::Kind;
  on_every_target([] {
    for (const Kind kind : {Kind::relu, Kind::leaky_relu, Kind::sigmoid, Kind::tanh, Kind::softsign}) {
      for (const Layout layout : {Layout::plain, Layout::blocked}) {
        for (const index_t groups : {index_t{1}, index_t{4}, index_t{20}}) {
          for (const Extent3& extent : {Extent3{1, 1, 3}, Extent3{3, 5, 7}, Extent3{5, 40, 43}}) {
            CAPTURE(name_of(kind), name_of(layout), groups, to_string(extent));
            check_activation<float>({kind, 0.25}, layout, groups, extent);
            check_activation<double>({kind, 0.25}, layout, groups, extent);
          }
        }
      }
    }
  });
}

TEST_CASE("a norm with an activation refuses a gradient of its input in other memory", "[ops]") {
  Case<float> on({1, 4, {1, 2, 3}}, {.groups = 2, .activation = {Activation::Kind::relu, 0}}, 22);
  TaskGraph graph;
  on.forward(graph);
  CHECK_THROWS_WITH(on.backward(graph), Catch::Contains("dx must be dy"));
}

TEST_CASE("group norm without parameters, and what it refuses", "[ops]") {
  Case<double> on({1, 4, {1, 2, 3}}, {.groups = 2}, 22);
  on.gamma.assign(4, 1.0);
  on.beta.assign(4, 0.0);
  run(1, [&](TaskGraph& graph) { on.forward(graph); });
  const Gapped<double> with_parameters(on.y);
  const NormStatistics statistics{on.mean.data(), on.rstd.data()};
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
  run(1, [&](TaskGraph& graph) {
    append_group_norm_forward<double>(graph, {}, on.x.view(), nullptr, nullptr, on.y.view(), statistics, on.norm,
                                      memory);
    const auto done =
        append_group_norm_backward<double>(graph, {}, on.x.view(), nullptr, nullptr, statistics, on.dy.view(), {},
                                           false, nullptr, nullptr, false, on.norm, memory);
    REQUIRE(done.dx.tasks().empty());
  });
  REQUIRE(on.y.same_bits(with_parameters));
  TaskGraph graph;
  REQUIRE_THROWS_AS(append_group_norm_forward<double>(graph, {}, on.x.view(), nullptr, nullptr, on.y.view(), statistics,
                                                      {.groups = 3}, memory),
                    ShapeMismatch);
  REQUIRE_THROWS_AS(append_group_norm_forward<double>(graph, {}, on.x.view(), nullptr, nullptr, on.y.view(), {},
                                                      {.groups = 2}, memory),
                    InvalidArgument);
}

}  // namespace convolume::ops::test
