#include "ops/pooling.hpp"

#include "testing/sanitizers.hpp"

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

enum class Data { random, ties, not_numbers };

template <class T>
void fill(Gapped<T>& x, Data data, Random& random) {
  index_t i = 0;
  x.set([&](index_t, index_t, index_t) -> double {
    ++i;
    if (data == Data::ties) return static_cast<double>(random.integer(-1, 1));
    if (data == Data::not_numbers && i % 11 == 0) return nan<double>;
    if (data == Data::not_numbers && i % 7 == 3) return -HUGE_VAL;
    return random.uniform(-1, 1);
  });
}

/// Runs one case forward and backward in a layout, and compares every feature map with the reference.
template <class T>
void check(const Case& on, Layout layout, index_t channels, Data data, Random& random, int threads = 1) {
  INFO("input " << to_string(on.input) << ", window " << to_string(on.pool.window) << ", stride "
                << to_string(on.pool.stride) << ", " << channels << " channels, " << name_of(layout));
  const Extent3 output = pooled_extent(on.input, on.pool);
  const Shape5 shape{2, channels, on.input}, pooled{2, channels, output};
  Gapped<T> x(shape, layout), y(pooled, layout), dy(pooled, layout), dx(shape, layout), sum(shape, layout);
  fill(x, data, random);
  dy.set_random(random);
  sum.set([](index_t, index_t, index_t) { return 1; });
  std::vector<std::uint8_t> taps(static_cast<std::size_t>(stored_elements(pooled, layout, data_type_of<T>())), 0xA5);
  run(threads, [&](TaskGraph& graph) {
    const Ready done = append_max_pool_forward(graph, {}, x.view(), y.view(), taps.data(), on.pool);
    append_max_pool_backward(graph, done, dy.view(), taps.data(), dx.view(), on.pool, false);
    append_max_pool_backward(graph, done, dy.view(), taps.data(), sum.view(), on.pool, true);
  });
  const View<std::uint8_t> in_taps(taps.data(), pooled);
  const index_t width = y.view().block_channels();
  const auto outputs = static_cast<std::size_t>(output.volume());
  bool all = true;
  for (index_t n = 0; n < 2; ++n) {
    for (index_t c = 0; c < channels; ++c) {
      std::vector<T> map(static_cast<std::size_t>(on.input.volume())), expected(outputs);
      std::vector<std::uint8_t> expected_taps(outputs);
      std::vector<index_t> where(outputs);
      for (std::size_t i = 0; i < map.size(); ++i) map[i] = x.at(n, c, static_cast<index_t>(i));
      reference(on, output, map, expected, where, expected_taps);
      std::vector<T> gradient(map.size(), T{0}), added(map.size(), T{1});
      for (std::size_t i = 0; i < outputs; ++i) {
        const auto v = static_cast<index_t>(i);
        const index_t block = n * y.view().blocks() + c / width;
        all = all &&
              taps[static_cast<std::size_t>((block * output.volume() + v) * width + c % width)] == expected_taps[i];
        all = all && (y.at(n, c, v) == expected[i] || (std::isnan(y.at(n, c, v)) && std::isnan(expected[i])));
        gradient[static_cast<std::size_t>(where[i])] += dy.at(n, c, v);
        added[static_cast<std::size_t>(where[i])] += dy.at(n, c, v);
      }
      for (std::size_t i = 0; i < map.size(); ++i) {
        const auto v = static_cast<index_t>(i);
        all = all && dx.at(n, c, v) == gradient[i] && sum.at(n, c, v) == added[i];
      }
    }
  }
  REQUIRE(all);
  REQUIRE(y.clean());
  REQUIRE(dx.clean());
  REQUIRE(sum.clean());
}

}  // namespace

TEMPLATE_TEST_CASE("max-pooling matches a reference, forward and backward", "[ops]", float, double) {
  on_every_target([] {
    Random random(5);
    for (const Case& on : cases) {
      for (const Data data : {Data::random, Data::ties, Data::not_numbers}) {
        if (convolume::test::sanitized && data == Data::ties) continue;
        check<TestType>(on, Layout::plain, 3, data, random);
        check<TestType>(on, Layout::blocked, 17, data, random);
      }
    }
    for (const index_t channels : channel_counts) {
      if (convolume::test::sanitized && channels > 8) continue;
      check<TestType>(cases[1], Layout::blocked, channels, Data::random, random);
      check<TestType>(cases[5], Layout::blocked, channels, Data::random, random);
    }
  });
}

TEMPLATE_TEST_CASE("windows that reach from slab to slab are summed in the order of the outputs", "[ops]", float,
                   double) {
  using T = TestType;
  if (convolume::test::sanitized && sizeof(T) == 8) return;  // float covers as many bytes and tasks
  Random random(6);
  const std::vector<MaxPool> pools{{},
                                   {{3, 2, 2}, {1, 1, 1}, {1, 1, 1}},
                                   {{2, 1, 1}, {1, 2, 2}, {3, 1, 1}},
                                   {{2, 2, 2}, {3, 3, 3}, {1, 1, 1}},
                                   {{3, 3, 3}, {2, 2, 2}, {2, 2, 2}}};
  for (const MaxPool& pool : pools) {
    for (const Layout layout : both_layouts) check<TestType>({{9, 50, 51}, pool}, layout, 3, Data::ties, random, 3);
  }
  check<TestType>({{40, 50, 51}, pools[1]}, Layout::plain, 1, Data::ties, random, 3);
}

TEST_CASE("tasks of a pooling wait for the planes under their windows", "[ops]") {
  const MaxPool pool{{3, 2, 2}, {2, 2, 2}, {2, 1, 1}};
  const Shape5 shape{1, 20, {11, 64, 64}}, pooled{1, 20, pooled_extent(shape.extent, pool)};
  Tensor<float> x(shape, Layout::blocked), y(pooled, Layout::blocked);
  std::vector<std::uint8_t> taps(static_cast<std::size_t>(y.elements()));
  TaskGraph graph;
  const Producers inputs(graph, shape, 16), outputs(graph, pooled, 16);
  const Ready forward = append_max_pool_forward<float>(graph, inputs.ready, x, y, taps.data(), pool);
  const Ready backward = append_max_pool_backward<float>(graph, outputs.ready, y, taps.data(), x, pool, false);
  for (index_t in = 0; in < shape.extent.z; ++in) {
    bool read_by_any = false;
    for (index_t out = 0; out < pooled.extent.z; ++out) {
      const bool under = in >= 2 * out && in <= 2 * out + 4;
      REQUIRE(waits(graph, forward, 17, out, inputs.of(0, 1, in)) == under);
      REQUIRE_FALSE(waits(graph, forward, 17, out, inputs.of(0, 0, in)));
      read_by_any = read_by_any || under;
      // The gradient also waits for its own planes of `ready`, which belongs to another tensor here.
      if (under) REQUIRE(waits(graph, backward, 17, in, outputs.of(0, 1, out)));
      if (!under && in != out) REQUIRE_FALSE(waits(graph, backward, 17, in, outputs.of(0, 1, out)));
    }
    REQUIRE(read_by_any);
  }
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
  REQUIRE_THROWS_AS(append_max_pool_forward(graph, {}, x.view(), y.view(), taps.data(), {}), ShapeMismatch);
  Tensor<float> half({1, 1, {2, 2, 2}}), blocked(half.shape(), Layout::blocked);
  REQUIRE_THROWS_AS(append_max_pool_forward(graph, {}, x.view(), half.view(), nullptr, {}), InvalidArgument);
  REQUIRE_THROWS_AS(append_max_pool_forward(graph, {}, x.view(), blocked.view(), taps.data(), {}), ShapeMismatch);
  REQUIRE_THROWS_AS(append_max_pool_backward(graph, {}, blocked.view(), taps.data(), x.view(), {}, false),
                    ShapeMismatch);
}

}  // namespace convolume::ops::test
