#include "ops/pooling.hpp"

#include "tests/ops/ops_test.hpp"

namespace convolume::ops::test {
namespace {

struct Case {
  Extent3 input;
  MaxPool pool;
};

const std::vector<Case> cases{
    {{4, 4, 4}, {}},
    {{5, 7, 37}, {}},
    {{2, 2, 67}, {}},
    {{3, 8, 66}, {{1, 2, 2}, {1, 2, 2}, {1, 1, 1}}},
    {{4, 6, 19}, {{2, 2, 1}, {2, 2, 1}, {1, 1, 1}}},
    {{5, 7, 35}, {{3, 3, 3}, {2, 2, 2}, {1, 1, 1}}},
    {{5, 6, 40}, {{2, 2, 2}, {1, 1, 1}, {1, 1, 1}}},
    {{6, 7, 23}, {{2, 2, 2}, {1, 1, 1}, {2, 3, 4}}},
    {{7, 7, 41}, {{2, 3, 3}, {2, 2, 2}, {3, 1, 2}}},
    {{6, 9, 38}, {{2, 3, 3}, {2, 3, 3}, {1, 1, 1}}},
    {{9, 5, 21}, {{3, 1, 5}, {3, 2, 1}, {1, 1, 1}}},
    {{4, 8, 16}, {{4, 8, 8}, {1, 1, 1}, {1, 1, 1}}},
    {{1, 1, 1}, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}},
    {{3, 4, 17}, {{2, 2, 2}, {3, 3, 3}, {1, 1, 1}}},
};

template <class T>
void reference(const Case& on, const Extent3& output, const std::vector<T>& x, std::vector<T>& y,
               std::vector<index_t>& where, std::vector<std::uint8_t>& taps) {
  const auto& [window, stride, dilation] = on.pool;
  std::size_t out = 0;
  for (index_t oz = 0; oz < output.z; ++oz) {
    for (index_t oy = 0; oy < output.y; ++oy) {
      for (index_t ox = 0; ox < output.x; ++ox, ++out) {
        y[out] = -std::numeric_limits<T>::infinity();
        std::uint8_t tap = 0;
        for (index_t z = 0; z < window.z; ++z) {
          for (index_t t = 0; t < window.y; ++t) {
            for (index_t s = 0; s < window.x; ++s, ++tap) {
              const index_t at =
                  ((oz * stride.z + z * dilation.z) * on.input.y + oy * stride.y + t * dilation.y) * on.input.x +
                  ox * stride.x + s * dilation.x;
              const T value = x[static_cast<std::size_t>(at)];
              if (value > y[out] || std::isnan(value) || tap == 0) {
                y[out] = value;
                taps[out] = tap;
                where[out] = at;
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("max-pooling matches a reference, forward and backward", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    Random random(5);
    for (const Case& on : cases) {
      INFO("input " << to_string(on.input) << ", window " << to_string(on.pool.window) << ", stride "
                    << to_string(on.pool.stride));
      const Extent3 output = pooled_extent(on.input, on.pool);
      const auto outputs = static_cast<std::size_t>(output.volume());
      for (int data = 0; data < 3; ++data) {
        auto x = random.uniform<T>(on.input.volume(), -1, 1);
        if (data == 1) {  // ties
          for (T& value : x) value = static_cast<T>(random.integer(-1, 1));
        }
        if (data == 2) {
          for (std::size_t i = 0; i < x.size(); i += 11) x[i] = nan<T>;
          for (std::size_t i = 3; i < x.size(); i += 7) x[i] = -std::numeric_limits<T>::infinity();
        }
        std::vector<T> y(outputs, nan<T>), expected(outputs);
        std::vector<std::uint8_t> taps(outputs, 255), expected_taps(outputs);
        std::vector<index_t> where(outputs);
        max_pool_forward(on.pool, on.input, output, x.data(), y.data(), taps.data());
        reference(on, output, x, expected, where, expected_taps);
        REQUIRE(taps == expected_taps);
        bool all = true;
        for (std::size_t i = 0; i < outputs; ++i) {
          all = all && (y[i] == expected[i] || (std::isnan(y[i]) && std::isnan(expected[i])));
        }
        REQUIRE(all);

        const auto dy = random.uniform<T>(output.volume(), -1, 1);
        for (const bool add : {false, true}) {
          std::vector<T> dx(x.size(), add ? T{1} : nan<T>), sum(x.size(), add ? T{1} : T{0});
          max_pool_backward(on.pool, on.input, output, dy.data(), taps.data(), dx.data(), add);
          for (std::size_t i = 0; i < outputs; ++i) sum[static_cast<std::size_t>(where[i])] += dy[i];
          REQUIRE(dx == sum);
        }
      }
    }
  });
}

TEMPLATE_TEST_CASE("max-pooling tasks serve strided channels", "[ops]", float, double) {
  using T = TestType;
  const Shape5 shape{2, 3, {4, 7, 9}};
  const MaxPool pool;
  const Shape5 pooled{2, 3, pooled_extent(shape.extent, pool)};
  Random random(6);
  Gapped<T> x(shape), y(pooled), dx(shape);
  Gapped<std::uint8_t> taps(pooled);
  x.set_random(random);
  run(2, [&](TaskGraph& graph) {
    const Ready done = append_max_pool_forward(graph, {}, x.view(), y.view(), taps.view(), pool);
    append_max_pool_backward(graph, done, y.view(), taps.view(), dx.view(), pool, false);
  });
  // The gradient of half the sum of squares of the maxima is the maxima, where they came from.
  double forward = 0, backward = 0;
  y.for_each([&](index_t n, index_t c, index_t v) { forward += std::pow(y.at(n, c, v), 2); });
  bool all = true;
  dx.for_each([&](index_t n, index_t c, index_t v) {
    all = all && (dx.at(n, c, v) == 0 || dx.at(n, c, v) == x.at(n, c, v));
    backward += static_cast<double>(dx.at(n, c, v)) * static_cast<double>(x.at(n, c, v));
  });
  REQUIRE(all);
  REQUIRE(close(backward, forward, 1e-12));
  REQUIRE(y.gaps_untouched());
  REQUIRE(dx.gaps_untouched());
  REQUIRE(taps.gaps_untouched());
}

TEST_CASE("a window that does not fit is refused", "[ops]") {
  REQUIRE_THROWS_AS(pooled_extent({4, 4, 1}, {}), ShapeMismatch);
  REQUIRE_THROWS_AS(pooled_extent({4, 4, 4}, {{2, 2, 2}, {1, 1, 1}, {1, 4, 1}}), ShapeMismatch);
  REQUIRE_THROWS_AS(pooled_extent({9, 9, 9}, {{7, 7, 7}, {1, 1, 1}, {1, 1, 1}}), InvalidArgument);
  REQUIRE_THROWS_AS(pooled_extent({9, 9, 9}, {{1, 1, index_t{1} << 62}, {1, 1, 1}, {1, 1, 1}}), InvalidArgument);
  REQUIRE_THROWS_AS(pooled_extent({9, 9, 9}, {{0, 1, 1}, {1, 1, 1}, {1, 1, 1}}), InvalidArgument);
  REQUIRE_THROWS_AS(pooled_extent({9, 9, 9}, {{2, 2, 2}, {1, 0, 1}, {1, 1, 1}}), InvalidArgument);
  REQUIRE_THROWS_AS(pooled_extent({9, 9, 9}, {{2, 2, 2}, {1, 1, 1}, {1, 1, -1}}), InvalidArgument);
  REQUIRE_THROWS_AS(pooled_extent({9, 9, 9}, {{2, 2, 2}, {1, 1, 1}, {1, 1, index_t{1} << 62}}), ShapeMismatch);
  Tensor<float> x({1, 1, {4, 4, 4}}), y({1, 1, {2, 2, 1}});
  std::vector<std::uint8_t> taps(8);
  TaskGraph graph;
  REQUIRE_THROWS_AS(
      append_max_pool_forward(graph, {}, x.view(), y.view(), View<std::uint8_t>(taps.data(), y.shape()), {}),
      ShapeMismatch);
}

}  // namespace convolume::ops::test
