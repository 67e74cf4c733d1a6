#include "ops/resample.hpp"

#include "tests/ops/ops_test.hpp"

namespace convolume::ops::test {
namespace {

/// Fills with small integers, so sums are exact in every order.
template <class T>
void fill(Gapped<T>& x, Random& random) {
  x.set([&](index_t, index_t, index_t) { return random.integer(-9, 9); });
}

template <class T>
void check(const Shape5& shape, const Extent3& factor, Layout layout, Random& random, int threads = 1) {
  INFO("factor " << to_string(factor) << ", input " << to_string(shape) << ", " << name_of(layout));
  const Shape5 large{shape.n, shape.c, shape.extent * factor};
  Gapped<T> x(shape, layout), y(large, layout), dy(large, layout), dx(shape, layout), added(shape, layout);
  fill(x, random);
  fill(dy, random);
  fill(added, random);
  Gapped<T> sum(shape, layout), sum_added(added);
  sum.set([](index_t, index_t, index_t) { return 0; });
  run(threads, [&](TaskGraph& graph) {
    append_upsample_forward(graph, {}, x.view(), y.view(), factor);
    append_upsample_backward(graph, {}, dy.view(), dx.view(), factor, false);
    append_upsample_backward(graph, {}, dy.view(), added.view(), factor, true);
  });
  bool all = true;
  const Extent3 in = shape.extent, out = large.extent;
  y.for_each([&](index_t n, index_t c, index_t v) {
    const index_t z = v / (out.y * out.x), row = v / out.x % out.y, column = v % out.x;
    const index_t from = (z / factor.z * in.y + row / factor.y) * in.x + column / factor.x;
    all = all && y.at(n, c, v) == x.at(n, c, from);
    sum.at(n, c, from) += dy.at(n, c, v);
    sum_added.at(n, c, from) += dy.at(n, c, v);
  });
  dx.for_each([&](index_t n, index_t c, index_t v) {
    all = all && dx.at(n, c, v) == sum.at(n, c, v) && added.at(n, c, v) == sum_added.at(n, c, v);
  });
  REQUIRE(all);
  REQUIRE(y.clean());
  REQUIRE(dx.clean());
  REQUIRE(added.clean());
}

}  // namespace

TEMPLATE_TEST_CASE("upsampling repeats voxels, its gradient sums them", "[ops]", float, double) {
  on_every_target([] {
    Random random(7);
    for (const Extent3 factor : {Extent3{1, 1, 1}, {2, 2, 2}, {1, 2, 2}, {3, 1, 3}, {2, 3, 1}, {1, 1, 5}}) {
      for (const Extent3 input : {Extent3{1, 1, 1}, {2, 3, 5}, {3, 2, 37}, {1, 4, 16}}) {
        check<TestType>({2, 2, input}, factor, Layout::plain, random);
        check<TestType>({1, 17, input}, factor, Layout::blocked, random);
      }
    }
    for (const index_t channels : channel_counts) {
      check<TestType>({2, channels, {2, 3, 5}}, {2, 2, 2}, Layout::blocked, random);
    }
  });
}

TEMPLATE_TEST_CASE("upsampling of many slabs", "[ops]", float, double) {
  Random random(8);
  // Some Z ranges of the output begin between the copies of an input plane.
  check<TestType>({1, 17, {5, 31, 33}}, {3, 2, 1}, Layout::blocked, random, 3);
  check<TestType>({1, 2, {21, 81, 33}}, {3, 2, 1}, Layout::plain, random, 3);
}

TEST_CASE("tasks of an upsampling wait for the planes that they read", "[ops]") {
  const Shape5 small{1, 20, {4, 64, 64}}, large{1, 20, {12, 64, 64}};
  Tensor<float> x(small, Layout::blocked), y(large, Layout::blocked);
  TaskGraph graph;
  const Producers inputs(graph, small, 16), outputs(graph, large, 16);
  const Ready forward = append_upsample_forward<float>(graph, inputs.ready, x, y, {3, 1, 1});
  const Ready backward = append_upsample_backward<float>(graph, outputs.ready, y, x, {3, 1, 1}, false);
  for (index_t in = 0; in < 4; ++in) {
    for (index_t out = 0; out < 12; ++out) {
      REQUIRE(waits(graph, forward, 17, out, inputs.of(0, 1, in)) == (out / 3 == in));
      REQUIRE(waits(graph, backward, 17, in, outputs.of(0, 1, out)) == (out / 3 == in || out == in));
    }
  }
}

TEST_CASE("upsampling refuses what does not fit", "[ops]") {
  Tensor<float> x({2, 3, {2, 3, 5}}), y({2, 3, {2, 6, 15}}), blocked(y.shape(), Layout::blocked);
  TaskGraph graph;
  REQUIRE_THROWS_AS(append_upsample_forward(graph, {}, x.view(), y.view(), {2, 2, 3}), ShapeMismatch);
  REQUIRE_THROWS_AS(append_upsample_forward(graph, {}, x.view(), y.view(), {0, 2, 3}), InvalidArgument);
  REQUIRE_THROWS_AS(append_upsample_forward(graph, {}, x.view(), blocked.view(), {1, 2, 3}), ShapeMismatch);
  REQUIRE_THROWS_AS(append_upsample_backward(graph, {}, blocked.view(), x.view(), {1, 2, 3}, false), ShapeMismatch);
}

}  // namespace convolume::ops::test
