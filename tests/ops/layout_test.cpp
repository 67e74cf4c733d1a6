#include "ops/layout.hpp"

#include "ops/copy.hpp"
#include "tests/ops/ops_test.hpp"

namespace convolume::ops::test {

TEMPLATE_TEST_CASE("the blocked layout holds channels side by side and zero pad lanes", "[ops]", float, double) {
  using T = TestType;
  static constexpr index_t width = channel_block(data_type_of<T>());
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
        const View<T> view(blocked.data(), shape, Layout::blocked);
        convert(plain.view(), view);
        bool all = true;
        for (index_t i = 0; i < elements; ++i) {
          const index_t lane = i % width, v = i / width % voxels, block = i / width / voxels % blocks;
          const index_t c = block * width + lane, n = i / (width * voxels * blocks);
          all = all && blocked[static_cast<std::size_t>(i)] == (c < channels ? plain.at(n, c, v) : T{0});
        }
        REQUIRE(all);
        convert(view, back.view());
        REQUIRE(back.same_bits(plain));

        // Pad lanes must not be read.
        for (index_t i = 0; i < elements; ++i) {
          const index_t c = i / width / voxels % blocks * width + i % width;
          if (c >= channels) blocked[static_cast<std::size_t>(i)] = nan<T>;
        }
        Gapped<T> again(shape);
        convert(view, again.view());
        REQUIRE(again.same_bits(plain));
      }
    }
  });
}

TEMPLATE_TEST_CASE("conversions serve crops and equal layouts", "[ops]", float, double) {
  using T = TestType;
  Random random(18);
  const Shape5 shape{2, 19, {4, 5, 9}}, part{2, 19, {2, 4, 7}};
  const Extent3 offset{1, 0, 2};
  for (const Layout from : both_layouts) {
    for (const Layout to : both_layouts) {
      Gapped<T> x(shape, from), y(part, to), back(shape, from), wanted(shape, from);
      x.set_random(random);
      back.set_from(x);
      wanted.set_from(x);
      convert<T>(crop(x.view(), offset, part.extent), y.view());
      bool all = true;
      for (index_t i = 0; i < part.extent.volume(); ++i) {
        const index_t z = i / 28, row = i / 7 % 4, column = i % 7;
        for (index_t c = 0; c < 19; ++c) {
          all = all && y.at(1, c, i) == x.view()(1, c, z + 1, row, column + 2);
          wanted.view()(1, c, z + 1, row, column + 2) += 1;
          wanted.view()(0, c, z + 1, row, column + 2) += 1;
        }
      }
      REQUIRE(all);
      REQUIRE(y.clean());
      y.for_each([&](index_t n, index_t c, index_t v) { y.at(n, c, v) += 1; });
      convert<T>(y.view(), crop(back.view(), offset, part.extent));
      REQUIRE(back.same_bits(wanted));
    }
  }
}

TEST_CASE("sizes of the blocked layout are checked", "[ops]") {
  REQUIRE_THROWS_AS(stored_elements({index_t{1} << 40, 1, {1 << 20, 1, 1}}, Layout::blocked, DataType::f32),
                    OverflowError);
  Tensor<float> x({1, 2, {2, 2, 2}}), y({1, 2, {2, 2, 1}}, Layout::blocked);
  REQUIRE_THROWS_AS(convert<float>(x.view(), y.view()), ShapeMismatch);
  REQUIRE_THROWS_AS(convert<float>(x.view(), View<float>(nullptr, x.shape(), Layout::blocked)), InvalidArgument);
  View<float> wide = y.view();
  wide.stride[4] = 32;
  REQUIRE_THROWS_AS(convert<float>(y.view(), wide), InvalidArgument);
}

}  // namespace convolume::ops::test
