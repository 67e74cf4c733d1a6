#include "ops/copy.hpp"

#include "tests/ops/ops_test.hpp"

namespace convolume::ops::test {

TEMPLATE_TEST_CASE("crops are concatenated and added at any channel offset", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    Random random(9);
    const Extent3 whole{5, 6, 23}, part{3, 4, 19}, offset{1, 2, 3};
    Gapped<T> a({2, 3, whole}), b({2, 2, part}), y({2, 5, part}), back({2, 3, whole});
    a.set_random(random);
    b.set_random(random);
    run(2, [&](TaskGraph& graph) {
      const Ready from_a =
          append_copy(graph, {}, crop<const T>(a.view(), offset, part), channels(y.view(), 0, 3), false);
      append_copy(graph, {}, b.view(), channels(y.view(), 3, 5), false);
      const Ready filled = append_fill(graph, {}, back.view(), 2);
      append_copy(graph, filled & from_a, channels<const T>(y.view(), 0, 3), crop(back.view(), offset, part), true);
    });
    bool all = true;
    for (index_t n = 0; n < 2; ++n) {
      for (index_t c = 0; c < 5; ++c) {
        for (index_t z = 0; z < part.z; ++z) {
          for (index_t row = 0; row < part.y; ++row) {
            for (index_t x = 0; x < part.x; ++x) {
              const T expected =
                  c < 3 ? a.view()(n, c, z + offset.z, row + offset.y, x + offset.x) : b.view()(n, c - 3, z, row, x);
              all = all && y.view()(n, c, z, row, x) == expected;
              if (c < 3) {
                T& sum = back.view()(n, c, z + offset.z, row + offset.y, x + offset.x);
                all = all && sum == 2 + expected;
                sum = 2;
              }
            }
          }
        }
      }
    }
    REQUIRE(all);
    back.for_each([&](index_t n, index_t c, index_t v) { all = all && back.at(n, c, v) == 2; });
    REQUIRE(all);
    REQUIRE(y.gaps_untouched());
    REQUIRE(back.gaps_untouched());
  });
}

TEMPLATE_TEST_CASE("tensors are added", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    Random random(10);
    for (const Extent3 extent : {Extent3{1, 1, 1}, {2, 3, 5}, {3, 1, 33}}) {
      const Shape5 shape{2, 2, extent};
      Gapped<T> a(shape), b(shape), y(shape);
      a.set_random(random);
      b.set_random(random);
      run(1, [&](TaskGraph& graph) {
        const Ready sum = append_add(graph, {}, a.view(), b.view(), y.view());
        append_add(graph, sum, y.view(), b.view(), y.view());
      });
      bool all = true;
      y.for_each([&](index_t n, index_t c, index_t v) {
        all = all && y.at(n, c, v) == a.at(n, c, v) + b.at(n, c, v) + b.at(n, c, v);
      });
      REQUIRE(all);
      REQUIRE(y.gaps_untouched());
    }
  });
}

TEST_CASE("sub-views outside a view are refused", "[ops]") {
  Tensor<float> x({1, 2, {4, 4, 4}});
  REQUIRE_THROWS_AS(crop(x.view(), {1, 0, 0}, {4, 4, 4}), ShapeMismatch);
  REQUIRE_THROWS_AS(crop(x.view(), {-1, 0, 0}, {2, 2, 2}), ShapeMismatch);
  REQUIRE_THROWS_AS(crop(x.view(), {0, 0, 0}, {2, 0, 2}), ShapeMismatch);
  REQUIRE_THROWS_AS(channels(x.view(), 1, 3), ShapeMismatch);
  REQUIRE_THROWS_AS(channels(x.view(), 1, 1), ShapeMismatch);
  TaskGraph graph;
  REQUIRE_THROWS_AS(append_copy(graph, {}, x.view(), channels(x.view(), 0, 1), false), ShapeMismatch);
  View<float> columns = x.view();
  columns.stride[4] = 2;
  REQUIRE_THROWS_AS(append_fill(graph, {}, columns, 0), InvalidArgument);
}

}  // namespace convolume::ops::test
