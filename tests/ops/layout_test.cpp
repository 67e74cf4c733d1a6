#include "ops/layout.hpp"

#include "tests/ops/ops_test.hpp"

namespace convolume::ops::test {

TEMPLATE_TEST_CASE("the blocked layout holds channels side by side and zero pad lanes", "[ops]", float, double) {
  using T = TestType;
  constexpr index_t width = channel_block(data_type_of<T>());
  on_every_target([] {
    Random random(17);
    for (const index_t channels : {1, 3, 4, 7, 8, 15, 16, 17, 33}) {
      for (const Extent3 extent : {Extent3{1, 1, 1}, {1, 1, 3}, {2, 3, 5}, {3, 4, 7}}) {
        INFO(channels << " channels of " << to_string(extent));
        const Shape5 shape{2, channels, extent};
        Gapped<T> plain(shape), back(shape);
        plain.set_random(random);
        const index_t elements = stored_elements(shape, Layout::blocked, data_type_of<T>());
        const index_t blocks = (channels + width - 1) / width, voxels = extent.volume();
        REQUIRE(elements == 2 * blocks * width * voxels);
        std::vector<T> blocked(static_cast<std::size_t>(elements), nan<T>);
        to_blocked(plain.view(), blocked.data());
        bool all = true;
        for (index_t i = 0; i < elements; ++i) {
          const index_t lane = i % width, v = i / width % voxels, block = i / width / voxels % blocks;
          const index_t c = block * width + lane, n = i / (width * voxels * blocks);
          all = all && blocked[static_cast<std::size_t>(i)] == (c < channels ? plain.at(n, c, v) : T{0});
        }
        REQUIRE(all);
        to_plain(blocked.data(), back.view());
        REQUIRE(back.same_bits(plain));
      }
    }
  });
}

TEMPLATE_TEST_CASE("layout tasks wait for the channels of their block", "[ops]", float, double) {
  using T = TestType;
  const Shape5 shape{2, 19, {2, 3, 5}};
  Random random(18);
  Gapped<T> plain(shape), back(shape);
  plain.set_random(random);
  std::vector<T> blocked(static_cast<std::size_t>(stored_elements(shape, Layout::blocked, data_type_of<T>())), nan<T>);
  run(3, [&](TaskGraph& graph) {
    const Ready done = append_to_blocked(graph, {}, plain.view(), blocked.data());
    append_to_plain(graph, done, blocked.data(), back.view());
  });
  REQUIRE(back.same_bits(plain));
}

TEST_CASE("sizes of the blocked layout are checked", "[ops]") {
  REQUIRE_THROWS_AS(stored_elements({index_t{1} << 40, 1, {1 << 20, 1, 1}}, Layout::blocked, DataType::f32), OverflowError);
  Tensor<float> x({1, 2, {2, 2, 2}});
  REQUIRE_THROWS_AS(to_blocked<float>(x.view(), nullptr), InvalidArgument);
}

}  // namespace convolume::ops::test
