#include "ops/resample.hpp"

#include "tests/ops/ops_test.hpp"

namespace convolume::ops::test {

TEMPLATE_TEST_CASE("upsampling repeats voxels, its gradient sums them", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    Random random(7);
    for (const Extent3 factor : {Extent3{1, 1, 1}, {2, 2, 2}, {1, 2, 2}, {3, 1, 3}, {2, 3, 1}, {1, 1, 5}}) {
      for (const Extent3 input : {Extent3{1, 1, 1}, {2, 3, 5}, {3, 2, 37}, {1, 4, 16}}) {
        INFO("factor " << to_string(factor) << ", input " << to_string(input));
        const Extent3 output = input * factor;
        // Small integers: every order of the sum is exact.
        std::vector<T> x(static_cast<std::size_t>(input.volume())), dy(static_cast<std::size_t>(output.volume()));
        for (T& value : x) value = static_cast<T>(random.integer(-9, 9));
        for (T& value : dy) value = static_cast<T>(random.integer(-9, 9));
        std::vector<T> y(dy.size(), nan<T>), dx(x.size(), nan<T>), sum(x.size(), T{0});
        upsample_forward(factor, input, x.data(), y.data());
        upsample_backward(factor, input, dy.data(), dx.data(), false);
        bool all = true;
        std::size_t i = 0;
        for (index_t z = 0; z < output.z; ++z) {
          for (index_t row = 0; row < output.y; ++row) {
            for (index_t column = 0; column < output.x; ++column, ++i) {
              const auto from =
                  static_cast<std::size_t>((z / factor.z * input.y + row / factor.y) * input.x + column / factor.x);
              all = all && y[i] == x[from];
              sum[from] += dy[i];
            }
          }
        }
        REQUIRE(all);
        REQUIRE(dx == sum);
        upsample_backward(factor, input, dy.data(), dx.data(), true);
        for (T& value : sum) value *= 2;
        REQUIRE(dx == sum);
      }
    }
  });
}

TEMPLATE_TEST_CASE("upsampling tasks are adjoint to each other", "[ops]", float, double) {
  using T = TestType;
  const Shape5 small{2, 3, {2, 3, 5}}, large{2, 3, {2, 6, 15}};
  Random random(8);
  Gapped<T> x(small), y(large), dy(large), dx(small);
  x.set_random(random);
  dy.set_random(random);
  run(2, [&](TaskGraph& graph) {
    append_upsample_forward(graph, {}, x.view(), y.view(), {1, 2, 3});
    append_upsample_backward(graph, {}, dy.view(), dx.view(), {1, 2, 3}, false);
  });
  double left = 0, right = 0;
  y.for_each([&](index_t n, index_t c, index_t v) {
    left += static_cast<double>(y.at(n, c, v)) * static_cast<double>(dy.at(n, c, v));
  });
  x.for_each([&](index_t n, index_t c, index_t v) {
    right += static_cast<double>(x.at(n, c, v)) * static_cast<double>(dx.at(n, c, v));
  });
  REQUIRE(close(left, right, 50 * epsilon<T>, 1));
  REQUIRE(y.gaps_untouched());
  REQUIRE(dx.gaps_untouched());

  TaskGraph graph;
  REQUIRE_THROWS_AS(append_upsample_forward(graph, {}, x.view(), y.view(), {2, 2, 3}), ShapeMismatch);
  REQUIRE_THROWS_AS(append_upsample_forward(graph, {}, x.view(), y.view(), {0, 2, 3}), InvalidArgument);
}

}  // namespace convolume::ops::test
