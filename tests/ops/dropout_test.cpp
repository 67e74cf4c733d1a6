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

}  // namespace convolume::ops::test
