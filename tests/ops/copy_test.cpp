#include "ops/copy.hpp"

#include "testing/sanitizers.hpp"

#include "tests/ops/ops_test.hpp"

namespace convolume::ops::test {
namespace {

constexpr Extent3 whole{5, 6, 23}, part{3, 4, 19}, offset{1, 2, 3};

/// Returns the position of voxel v of the crop in the whole tensor.
index_t in_whole(index_t v) {
  const index_t z = v / (part.y * part.x), y = v / part.x % part.y, x = v % part.x;
  return ((z + offset.z) * whole.y + y + offset.y) * whole.x + x + offset.x;
}

/// A tensor and its crop.
template <class T>
struct Cropped {
  Cropped(index_t channels, Layout layout, Random& random) : tensor({2, channels, whole}, layout) {
    tensor.set_random(random);
  }
  View<T> view() const { return crop(tensor.view(), offset, part); }
  T& at(index_t n, index_t c, index_t v) const { return tensor.at(n, c, in_whole(v)); }
  Gapped<T> tensor;
};

}  // namespace

TEMPLATE_TEST_CASE("copies and sums between any layouts, of crops", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    Random random(9);
    for (const index_t channels : channel_counts) {
      for (const Layout from : both_layouts) {
        for (const Layout to : both_layouts) {
          INFO(channels << " channels, " << name_of(from) << " to " << name_of(to));
          Cropped<T> source(channels, from, random);
          source.tensor.set_pads(nan<T>);
          Gapped<T> target({2, channels, part}, to), sum({2, channels, part}, to);
          sum.set_random(random);
          const Gapped<T> before(sum);
          sum.set_pads(nan<T>);
          Cropped<T> back(channels, from, random);
          const Gapped<T> back_before(back.tensor);
          run(2, [&](TaskGraph& graph) {
            const Ready copied = append_copy<T>(graph, {}, source.view(), target.view(), false);
            append_copy<T>(graph, {}, source.view(), sum.view(), true);
            append_copy<T>(graph, copied, target.view(), back.view(), true);
          });
          bool all = true;
          target.for_each([&](index_t n, index_t c, index_t v) {
            const T value = source.at(n, c, v);
            all = all && target.at(n, c, v) == value && sum.at(n, c, v) == before.at(n, c, v) + value;
            all = all && back.at(n, c, v) == back_before.at(n, c, in_whole(v)) + value;
            back.at(n, c, v) = back_before.at(n, c, in_whole(v));
          });
          REQUIRE(all);
          REQUIRE(back.tensor.same_bits(back_before));
          REQUIRE(target.clean());
          REQUIRE(sum.clean());
        }
      }
    }
  });
}

TEMPLATE_TEST_CASE("concatenations at any channel offset, and their slices", "[ops]", float, double) {
  using T = TestType;
  if (convolume::test::sanitized && sizeof(T) == 8) return;  // float covers as many bytes and tasks
  on_every_target([] {
    Random random(26);
    const std::vector<std::vector<index_t>> splits{{8, 8},  {30, 60},     {1, 16},        {16, 1}, {3},
                                                   {17, 5}, {1, 1, 1, 1}, {15, 2, 31, 7}, {16, 32}};
    for (const auto& split : splits) {
      for (int layouts = 0; layouts < 6; ++layouts) {
        const Layout to = layouts % 2 == 0 ? Layout::plain : Layout::blocked;
        index_t channels = 0;
        std::vector<Cropped<T>> sources;
        std::vector<View<const T>> views;
        std::vector<std::pair<std::size_t, index_t>> origin;  // source and its channel, for every joined channel
        for (std::size_t k = 0; k < split.size(); ++k) {
          // The sources are all plain, all blocked, or alternate.
          const bool plain = layouts / 2 == 0 || (layouts / 2 == 2 && k % 2 == 0);
          sources.emplace_back(split[k], plain ? Layout::plain : Layout::blocked, random);
          sources.back().tensor.set_pads(nan<T>);
          channels += split[k];
          for (index_t c = 0; c < split[k]; ++c) origin.emplace_back(k, c);
        }
        INFO(split.size() << " sources, " << split[0] << " channels in the first, " << channels << " in all, "
                          << name_of(to));
        for (const auto& source : sources) views.push_back(source.view());
        Gapped<T> y({2, channels, part}, to);
        run(2, [&](TaskGraph& graph) { append_concat<T>(graph, std::vector<Ready>(split.size()), views, y.view()); });
        bool all = true;
        y.for_each([&](index_t n, index_t c, index_t v) {
          const auto& [k, channel] = origin[static_cast<std::size_t>(c)];
          all = all && y.at(n, c, v) == sources[k].at(n, channel, v);
        });
        REQUIRE(all);
        REQUIRE(y.clean());

        y.set_pads(nan<T>);
        index_t first = 0;
        for (std::size_t k = 0; k < split.size(); first += split[k++]) {
          Gapped<T> slice({2, split[k], part}, sources[k].view().layout), before(sources[k].tensor);
          before.set_pads(0);
          run(2, [&](TaskGraph& graph) {
            append_slice<T>(graph, {}, y.view(), first, slice.view(), false);
            append_slice<T>(graph, {}, y.view(), first, sources[k].view(), true);
          });
          slice.for_each([&](index_t n, index_t c, index_t v) {
            all = all && slice.at(n, c, v) == y.at(n, first + c, v);
            T& sum = sources[k].at(n, c, v);
            all = all && sum == 2 * slice.at(n, c, v);
            sum = slice.at(n, c, v);
          });
          REQUIRE(all);
          REQUIRE(slice.clean());
          REQUIRE(sources[k].tensor.same_elements(before));
          REQUIRE(sources[k].tensor.gaps_untouched());
        }
      }
    }
  });
}

TEMPLATE_TEST_CASE("tensors of either layout are added and cleared", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    Random random(10);
    for (const Layout layout : both_layouts) {
      for (const index_t channels : channel_counts) {
        const Shape5 shape{2, channels, part};
        Cropped<T> a(channels, layout, random);
        Gapped<T> b(shape, layout), y(shape, layout), cleared(shape, layout);
        b.set_random(random);
        Cropped<T> around(channels, layout, random);
        const Gapped<T> before(around.tensor);
        run(1, [&](TaskGraph& graph) {
          const Ready sum = append_add<T>(graph, {}, a.view(), b.view(), y.view());
          append_add(graph, sum, y.view(), b.view(), y.view());
          append_clear(graph, {}, cleared.view());
          append_clear(graph, {}, around.view());
        });
        bool all = true;
        y.for_each([&](index_t n, index_t c, index_t v) {
          all = all && y.at(n, c, v) == a.at(n, c, v) + b.at(n, c, v) + b.at(n, c, v);
          all = all && cleared.at(n, c, v) == 0 && around.at(n, c, v) == 0;
          around.at(n, c, v) = before.at(n, c, in_whole(v));
        });
        REQUIRE(all);
        REQUIRE(y.clean());
        REQUIRE(cleared.clean());
        REQUIRE(around.tensor.same_bits(before));
      }
    }
  });
}

TEMPLATE_TEST_CASE("copies of many slabs", "[ops]", float, double) {
  using T = TestType;
  if (convolume::test::sanitized && sizeof(T) == 8) return;  // float covers as many bytes and tasks
  Random random(27);
  for (const Layout from : both_layouts) {
    for (const Layout to : both_layouts) {
      const Shape5 shape{1, 19, many_slabs};
      Gapped<T> x(shape, from), y(shape, to), sum(shape, to), cleared(shape, to);
      x.set_random(random);
      run(3, [&](TaskGraph& graph) {
        const Ready copied = append_copy<T>(graph, {}, x.view(), y.view(), false);
        append_add<T>(graph, copied, y.view(), y.view(), sum.view());
        append_clear(graph, {}, cleared.view());
      });
      REQUIRE(y.same_elements(x));
      REQUIRE(y.clean());
      bool all = true;
      sum.for_each([&](index_t n, index_t c, index_t v) {
        all = all && sum.at(n, c, v) == 2 * x.at(n, c, v) && cleared.at(n, c, v) == 0;
      });
      REQUIRE(all);
      REQUIRE(sum.clean());
      REQUIRE(cleared.clean());
    }
  }
}

TEST_CASE("tasks of a concatenation wait for the blocks and planes that they read", "[ops]") {
  const Extent3 extent{4, 64, 64};
  const Shape5 first{1, 30, extent}, second{1, 20, extent}, joined{1, 50, extent};
  Tensor<float> a(first, Layout::blocked), b(second, Layout::blocked), y(joined, Layout::blocked);
  TaskGraph graph;
  const Producers of_a(graph, first, 16), of_b(graph, second, 16), of_y(graph, joined, 16);
  const std::vector<Ready> ready{of_a.ready, of_b.ready};
  const std::vector<View<const float>> sources{a.view(), b.view()};
  const Ready done = append_concat<float>(graph, ready, sources, y.view());
  // Channels of y by block: a0 | a1 and the first two of b | b 2..17 | b 18, 19.
  const std::array<std::array<bool, 2>, 4> reads_a{{{true, false}, {false, true}, {false, false}, {false, false}}};
  const std::array<std::array<bool, 2>, 4> reads_b{{{false, false}, {true, false}, {true, true}, {false, true}}};
  for (index_t block = 0; block < 4; ++block) {
    for (index_t from = 0; from < 2; ++from) {
      for (index_t z = 0; z < 4; ++z) {
        const auto to = static_cast<std::size_t>(block), source = static_cast<std::size_t>(from);
        REQUIRE(waits(graph, done, 16 * block, 2, of_a.of(0, from, z)) == (reads_a[to][source] && z == 2));
        REQUIRE(waits(graph, done, 16 * block, 2, of_b.of(0, from, z)) == (reads_b[to][source] && z == 2));
      }
    }
  }
  const Ready sliced = append_slice<float>(graph, of_y.ready, y.view(), 30, b.view(), true, of_b.ready);
  for (index_t block = 0; block < 4; ++block) {
    REQUIRE(waits(graph, sliced, 0, 1, of_y.of(0, block, 1)) == (block == 1 || block == 2));
    REQUIRE(waits(graph, sliced, 16, 1, of_y.of(0, block, 1)) == (block == 2 || block == 3));
  }
  REQUIRE(waits(graph, sliced, 16, 1, of_b.of(0, 1, 1)));
  REQUIRE_FALSE(waits(graph, sliced, 16, 1, of_b.of(0, 1, 2)));
  REQUIRE_FALSE(waits(graph, sliced, 16, 1, of_b.of(0, 0, 1)));
}

TEST_CASE("what is cropped along Z waits for all planes and completes all together", "[ops]") {
  const Shape5 shape{1, 16, {6, 64, 64}}, inner{1, 16, {3, 64, 64}};
  Tensor<float> x(shape, Layout::blocked), y(inner, Layout::blocked), back(shape, Layout::blocked);
  TaskGraph graph;
  const Producers of_x(graph, shape, 16), of_back(graph, shape, 16);
  const View<float> from = crop(x.view(), {2, 0, 0}, inner.extent), region = crop(back.view(), {3, 0, 0}, inner.extent);
  const Ready copied = append_copy<float>(graph, of_x.ready, from, y.view(), false);
  const Ready added = append_slice<float>(graph, copied, y.view(), 0, region, true, of_back.ready);
  std::vector<TaskId> tasks;
  added.collect(0, 0, 16, 0, 1, tasks);
  REQUIRE(tasks.size() == 1);
  for (index_t z = 0; z < 6; ++z) {
    REQUIRE(waits(graph, copied, 0, 0, of_x.of(0, 0, z)));
    REQUIRE(graph.ordered(of_back.of(0, 0, z), tasks[0]));
  }
  REQUIRE(copied.tasks().size() == 3);
  for (const TaskId task : copied.tasks()) REQUIRE(graph.ordered(task, tasks[0]));
}

TEST_CASE("copies refuse what does not fit", "[ops]") {
  Tensor<float> x({1, 2, {4, 4, 4}}), blocked(x.shape(), Layout::blocked);
  REQUIRE_THROWS_AS(crop(x.view(), {1, 0, 0}, {4, 4, 4}), ShapeMismatch);
  REQUIRE_THROWS_AS(crop(x.view(), {-1, 0, 0}, {2, 2, 2}), ShapeMismatch);
  REQUIRE_THROWS_AS(crop(x.view(), {0, 0, 0}, {2, 0, 2}), ShapeMismatch);
  Tensor<float> one({1, 1, {4, 4, 4}}), four({1, 4, {4, 4, 4}}), flat({1, 2, {4, 4, 3}});
  TaskGraph graph;
  REQUIRE_THROWS_AS(append_copy(graph, {}, x.view(), one.view(), false), ShapeMismatch);
  REQUIRE_THROWS_AS(append_add(graph, {}, x.view(), blocked.view(), x.view()), ShapeMismatch);
  REQUIRE_THROWS_AS(append_slice(graph, {}, x.view(), 2, one.view(), false), ShapeMismatch);
  REQUIRE_THROWS_AS(append_slice(graph, {}, x.view(), -1, one.view(), false), ShapeMismatch);
  REQUIRE_THROWS_AS(append_slice(graph, {}, x.view(), 0, flat.view(), false), ShapeMismatch);
  const auto concat = [&](std::vector<View<const float>> sources, std::size_t completions) {
    append_concat<float>(graph, std::vector<Ready>(completions), sources, four.view());
  };
  REQUIRE_NOTHROW(concat({x.view(), blocked.view()}, 2));
  REQUIRE_THROWS_AS(concat({x.view(), blocked.view()}, 1), InvalidArgument);
  REQUIRE_THROWS_AS(concat({x.view(), one.view()}, 2), ShapeMismatch);
  REQUIRE_THROWS_AS(concat({x.view(), flat.view()}, 2), ShapeMismatch);
  REQUIRE_THROWS_AS(concat({}, 0), InvalidArgument);
  View<float> columns = x.view();
  columns.stride[4] = 2;
  REQUIRE_THROWS_AS(append_clear(graph, {}, columns), InvalidArgument);
}

}  // namespace convolume::ops::test
