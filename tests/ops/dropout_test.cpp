#include "ops/dropout.hpp"

#include "tests/ops/ops_test.hpp"

namespace convolume::ops::test {

TEMPLATE_TEST_CASE("the dropout mask is a function of key and position", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    const RandomKey key{0x123456789ABCDEF0u, 7, 0x80000001u};
    const double rate = 0.3;
    for (const index_t first : {index_t{0}, index_t{1}, index_t{6}, index_t{255}, (index_t{1} << 34) - 5}) {
      const index_t n = 777;
      std::vector<T> x(static_cast<std::size_t>(n), T{1}), y(x.size(), nan<T>), pieces(x.size());
      dropout(key, rate, first, x.data(), y.data(), n);
      bool all = true;
      for (index_t i = 0; i < n; ++i) {
        const auto e = static_cast<std::uint64_t>(first + i);
        const bool dropped = static_cast<double>(philox(key, e / 4)[e % 4]) < std::floor(rate * 0x1p32);
        all = all && y[static_cast<std::size_t>(i)] == (dropped ? T{0} : static_cast<T>(1 / (1 - rate)));
      }
      REQUIRE(all);
      for (index_t i = 0; i < n; i += 57) {
        dropout(key, rate, first + i, x.data() + i, pieces.data() + i, std::min<index_t>(57, n - i));
      }
      REQUIRE(same_bits(pieces, y));
    }
  });
}

TEST_CASE("dropout keeps the mean and drops the rate", "[ops]") {
  const index_t n = 100000;
  for (const double rate : {0.0, 0.1, 0.5, 0.9}) {
    std::vector<double> x(static_cast<std::size_t>(n), 1.0), y(x.size());
    dropout({1, 2, 3}, rate, 0, x.data(), y.data(), n);
    double sum = 0;
    for (const double value : y) sum += value;
    REQUIRE(close(sum / static_cast<double>(n), 1, 5 * std::sqrt(rate / (1 - rate) / static_cast<double>(n)) + 1e-12));
  }
}

TEMPLATE_TEST_CASE("dropout tasks read the key when they run", "[ops]", float, double) {
  using T = TestType;
  const Shape5 shape{2, 3, {3, 5, 7}};
  Random random(16);
  Gapped<T> x(shape), y(shape), dx(shape);
  x.set_random(random);
  RandomKey key{1, 1, 1};
  TaskGraph graph;
  append_dropout_forward(graph, {}, x.view(), y.view(), 0.5, &key);
  const Ready cleared = append_dropout_backward(graph, {}, x.view(), dx.view(), 0.5, &key, false);
  append_dropout_backward(graph, cleared, x.view(), dx.view(), 0.5, &key, true);
  Scheduler scheduler(2);
  graph.run(scheduler);
  const Gapped<T> before(y);
  key.a = 2;
  graph.run(scheduler);
  REQUIRE_FALSE(before.same_bits(y));
  bool all = true;
  y.for_each([&](index_t n, index_t c, index_t v) {
    const auto e = static_cast<std::uint64_t>((n * 3 + c) * y.voxels() + v);
    const bool dropped = philox(key, e / 4)[e % 4] < 0x80000000u;
    all = all && y.at(n, c, v) == (dropped ? T{0} : 2 * x.at(n, c, v)) && dx.at(n, c, v) == 2 * y.at(n, c, v);
  });
  REQUIRE(all);
  REQUIRE(y.gaps_untouched());
  REQUIRE_THROWS_AS(append_dropout_forward(graph, {}, x.view(), y.view(), 1.0, &key), InvalidArgument);
  REQUIRE_THROWS_AS(append_dropout_forward(graph, {}, x.view(), y.view(), 0.5, nullptr), InvalidArgument);
}

TEMPLATE_TEST_CASE("plain and blocked tensors lose the same elements", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    Random random(25);
    const RandomKey key{1, 2, 3};
    // Some extents have feature maps that do not begin with a new counter, and more voxels than are drawn at once.
    for (const Extent3 extent : {Extent3{2, 3, 5}, {3, 8, 32}, {2, 7, 43}}) {
      for (const index_t channels : channel_counts) {
        INFO(channels << " channels of " << to_string(extent));
        const Shape5 shape{2, channels, extent};
        Gapped<T> x(shape), y(shape), dx(shape);
        Gapped<T> bx(shape, Layout::blocked), by(bx), bdx(bx);
        x.set_random(random);
        bx.set_from(x);
        for (const bool add : {false, true}) {
          run(1, [&](TaskGraph& graph) {
            append_dropout_forward(graph, {}, x.view(), y.view(), 0.3, &key);
            append_dropout_backward(graph, {}, x.view(), dx.view(), 0.3, &key, add);
            append_dropout_forward(graph, {}, bx.view(), by.view(), 0.3, &key);
            append_dropout_backward(graph, {}, bx.view(), bdx.view(), 0.3, &key, add);
          });
          REQUIRE(by.same_elements(y));
          REQUIRE(bdx.same_elements(dx));
          REQUIRE(by.clean());
          REQUIRE(bdx.clean());
        }
      }
    }
  });
}

TEMPLATE_TEST_CASE("the slabs of a dropout continue each other", "[ops]", float, double) {
  using T = TestType;
  const Shape5 shape{2, 19, many_slabs};
  const RandomKey key{4, 5, 6};
  for (const Layout layout : both_layouts) {
    Gapped<T> x(shape, layout), y(shape, layout);
    x.set([](index_t, index_t, index_t) { return 1; });
    run(2, [&](TaskGraph& graph) { append_dropout_forward(graph, {}, x.view(), y.view(), 0.5, &key); });
    bool all = true;
    y.for_each([&](index_t n, index_t c, index_t v) {
      const auto e = static_cast<std::uint64_t>((n * shape.c + c) * y.voxels() + v);
      all = all && y.at(n, c, v) == (philox(key, e / 4)[e % 4] < 0x80000000u ? 0 : 2);
    });
    REQUIRE(all);
    REQUIRE(y.clean());
  }
}

}  // namespace convolume::ops::test
