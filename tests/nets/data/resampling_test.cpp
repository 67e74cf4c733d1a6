// Volumes that are brought to another spacing: grids, values, boxes of files, patches.
#include "nets/data/resampling.hpp"

#include <cmath>
#include <cstring>
#include <numeric>

#include "testing/patches.hpp"
#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>

#include "convolume/error.hpp"
#include "core/random.hpp"
#include "nets/io/volume_sink.hpp"

namespace convolume::nets {
namespace {

using Catch::Matchers::Contains;

/// A tensor whose voxels are the values of a function at their places.
template <class Function>
Tensor<float> volume_of(const Extent3& e, const Function& value) {
  Tensor<float> made({1, 1, e});
  for (index_t i = 0; i < e.volume(); ++i) {
    made.data()[i] = static_cast<float>(
        value(static_cast<double>(i / (e.y * e.x)), static_cast<double>(i / e.x % e.y), static_cast<double>(i % e.x)));
  }
  return made;
}

Tensor<float> noise(const Extent3& extent) {
  Tensor<float> made({1, 1, extent});
  for (index_t i = 0; i < extent.volume(); ++i) {
    made.data()[i] = static_cast<float>(uniform_below({.seed = 4}, static_cast<std::uint64_t>(i), 250));
  }
  return made;
}

bool same(const float* a, const float* b, index_t n) {
  return std::memcmp(a, b, static_cast<std::size_t>(n) * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("a grid covers the space of its volume, and equal spacings need none", "[resampling]") {
  CHECK_FALSE(resampling_of({4, 5, 6}, {2, 1, 1}, {2, 1, 1}));
  const auto how = resampling_of({10, 30, 31}, {2, 1, 1}, {1, 1.5, 2});
  REQUIRE(how);
  CHECK(how->to.extent == Extent3{20, 20, 16});
  CHECK(how->zoom == VoxelLengths{0.5, 1.5, 2});
  CHECK(how->inverse().to.extent == Extent3{10, 30, 31});
  CHECK(resampling_of({1, 1, 3}, {1, 1, 1}, {4, 8, 16})->to.extent == Extent3{1, 1, 1});
  CHECK_THROWS_WITH(resampling_of({4, 4, 4}, {0.001, 0.001, 0.001}, {1, 1, 1}),
                    Contains("0.001 x 0.001 x 0.001") && Contains("same unit"));
  CHECK(coarse_axis({3, 1, 1}) == -1);
  CHECK(coarse_axis({3.1, 1, 1}) == 0);
  CHECK(coarse_axis({1, 4, 1.1}) == 1);
  CHECK(coarse_axis({4, 4, 1}) == -1);
}

TEST_CASE("linear functions are resampled exactly, except half a voxel from the faces", "[resampling]") {
  const auto plane = [](double z, double y, double x) { return 0.5 * z - 0.25 * y + 2 * x + 3; };
  for (const VoxelLengths target :
       {VoxelLengths{0.7, 0.9, 1.3}, VoxelLengths{2.2, 1.7, 0.4}, VoxelLengths{1, 1, 0.5}}) {
    const auto how = *resampling_of({12, 14, 16}, {1, 1, 1}, target);
    const auto from = volume_of(how.from.extent, plane);
    const auto to = resample(how, from.view(), std::pmr::get_default_resource());
    const Extent3 e = how.to.extent;
    double worst = 0;
    index_t inside = 0;
    for (index_t i = 0; i < e.volume(); ++i) {
      const Extent3 t{i / (e.y * e.x), i / e.x % e.y, i % e.x};
      double place[3];
      bool within = true;
      for (int axis = 0; axis < 3; ++axis) {
        place[axis] = how.place(axis, t[axis]);
        within = within && place[axis] >= 0 && place[axis] <= static_cast<double>(how.from.extent[axis] - 1);
      }
      if (!within) continue;
      ++inside;
      worst = std::max(worst, std::abs(static_cast<double>(to.data()[i]) - plane(place[0], place[1], place[2])));
    }
    CHECK(inside > e.volume() / 2);
    CHECK(worst < 1e-4);
  }
}

TEST_CASE("cubic interpolation matches Keys' kernel in double, and keeps voxels at their places", "[resampling]") {
  const auto kernel = [](double distance) {
    const double x = std::abs(distance);
    if (x < 1) return 1.5 * x * x * x - 2.5 * x * x + 1;
    return x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
  };
  for (const Extent3 extent : {Extent3{7, 9, 8}, Extent3{1, 9, 1}, Extent3{1, 1, 1}, Extent3{2, 3, 2}}) {
    const auto from = noise(extent);
    for (const VoxelLengths target : {VoxelLengths{0.7, 0.9, 1.3}, VoxelLengths{2.2, 1, 0.4}}) {
      auto how = *resampling_of(extent, {1, 1, 1}, target);
      how.cubic = true;
      const auto to = resample(how, from.view(), std::pmr::get_default_resource());
      const Extent3 e = how.to.extent;
      // Sums over all voxels and a margin, where the outer voxels go on.
      const auto weights = [&](int axis, index_t t) {
        const index_t n = extent[axis];
        const double place = std::clamp(how.place(axis, t), 0.0, static_cast<double>(n - 1));
        std::vector<double> all(static_cast<std::size_t>(n));
        for (index_t i = -2; i < n + 2; ++i) {
          all[static_cast<std::size_t>(std::clamp<index_t>(i, 0, n - 1))] += kernel(place - static_cast<double>(i));
        }
        return all;
      };
      for (index_t i = 0; i < e.volume(); ++i) {
        const auto z = weights(0, i / (e.y * e.x)), y = weights(1, i / e.x % e.y), x = weights(2, i % e.x);
        double sum = 0;
        for (index_t v = 0; v < extent.volume(); ++v) {
          sum += z[static_cast<std::size_t>(v / (extent.y * extent.x))] *
                 y[static_cast<std::size_t>(v / extent.x % extent.y)] * x[static_cast<std::size_t>(v % extent.x)] *
                 static_cast<double>(from.data()[v]);
        }
        REQUIRE(static_cast<double>(to.data()[i]) == Approx(sum).margin(5e-4));  // voxels are up to 250
      }
    }
    const Resampling identity{.from = {{0, 0, 0}, extent}, .to = {{0, 0, 0}, extent}, .cubic = true};
    CHECK(same(resample(identity, from.view(), std::pmr::get_default_resource()).data(), from.data(), extent.volume()));
    CHECK_FALSE(identity.inverse().cubic);
  }
}

TEST_CASE("a coarse axis takes the nearest slice, and labels the nearest voxel", "[resampling]") {
  const auto from = volume_of({3, 4, 4}, [](double z, double y, double x) { return 100 * z + 10 * y + x; });
  auto sections = *resampling_of({3, 4, 4}, {5, 1, 1}, {2, 1, 1});
  CHECK(sections.nearest_axis == 0);
  for (const bool cubic : {false, true}) {
    sections.cubic = cubic;
    const auto to = resample(sections, from.view(), std::pmr::get_default_resource());
    REQUIRE(to.shape().extent == Extent3{8, 4, 4});
    // Centres at 0.2, 0.6, ... sections from the first face on.
    const int nearest[8] = {0, 0, 1, 1, 1, 2, 2, 2};
    for (index_t z = 0; z < 8; ++z) {
      CHECK(to.view()(0, 0, z, 2, 3) == 100.0f * static_cast<float>(nearest[z]) + 23);
    }
  }
  auto labels = *resampling_of({3, 4, 4}, {1, 1, 1}, {1, 0.7, 1.9});
  labels.nearest = labels.cubic = true;
  const auto classes = resample(labels, from.view(), std::pmr::get_default_resource());
  for (index_t i = 0; i < classes.elements(); ++i) CHECK(classes.data()[i] == std::round(classes.data()[i]));
}

TEST_CASE("boxes of a resampled file, and a part of a map, have the bits of the whole", "[resampling]") {
  const test::TemporaryFolder folder;
  const Extent3 extent{17, 23, 19};
  const auto voxels = noise(extent);
  const io::VolumePath path{folder.path() / "v.zarr", ""};
  const auto sink = io::create_volume(path, {.channels = 1, .extent = extent, .chunk = {4, 8, 8}});
  sink->write({0, 1}, {{0, 0, 0}, extent},
              std::as_bytes(std::span(voxels.data(), static_cast<std::size_t>(voxels.elements()))));
  sink->finish();
  const std::shared_ptr<const io::VolumeSource> file = io::open_volume(path);
  for (const bool cubic : {false, true, false, true}) {
    const VoxelLengths target = cubic ? VoxelLengths{0.6, 1.4, 2.3} : VoxelLengths{3.5, 0.8, 1};
    auto how = *resampling_of(extent, {1, 1, 1}, target);
    how.cubic = cubic;
    const auto whole = resample(how, voxels.view(), std::pmr::get_default_resource());
    const auto source = resampled(file, how, true);
    REQUIRE(source->info().extent == how.to.extent);
    for (std::uint64_t i = 0; i < 20; ++i) {
      io::VoxelBox box;
      for (int axis = 0; axis < 3; ++axis) {
        const auto number = [&](std::uint64_t k, index_t n) {
          return static_cast<index_t>(uniform_below({.seed = 9}, 6 * i + 2 * static_cast<std::uint64_t>(axis) + k,
                                                    static_cast<std::uint64_t>(n)));
        };
        box.begin[axis] = number(0, how.to.extent[axis]);
        box.extent[axis] = 1 + number(1, how.to.extent[axis] - box.begin[axis]);
      }
      std::vector<float> found(static_cast<std::size_t>(box.extent.volume())), part(found.size());
      source->read({0, 1}, box, std::as_writable_bytes(std::span(found)));
      const Resampling cut = how.cut(box);
      Tensor<float> needed({1, 1, cut.from.extent});
      io::copy_overlap(reinterpret_cast<const std::byte*>(voxels.data()), {{0, 0, 0}, extent},
                       reinterpret_cast<std::byte*>(needed.data()), cut.from, sizeof(float));
      const auto of_part = resample(cut, needed.view(), std::pmr::get_default_resource());
      for (index_t z = 0; z < box.extent.z; ++z) {
        for (index_t y = 0; y < box.extent.y; ++y) {
          const index_t row = (z * box.extent.y + y) * box.extent.x;
          const float* const expected = &whole.view()(0, 0, box.begin.z + z, box.begin.y + y, box.begin.x);
          REQUIRE(same(found.data() + row, expected, box.extent.x));
          REQUIRE(same(of_part.data() + row, expected, box.extent.x));
        }
      }
    }
  }
  // Integers are rounded to the nearest one.
  const auto how = *resampling_of({1, 1, 2}, {1, 1, 1}, {1, 1, 0.5});
  const io::VolumePath small{folder.path() / "s.zarr", ""};
  const auto bytes =
      io::create_volume(small, {.channels = 1, .extent = {1, 1, 2}, .type = io::VoxelType::uint8, .chunk = {1, 1, 2}});
  const std::uint8_t two[2] = {10, 255};
  bytes->write({0, 1}, {{0, 0, 0}, {1, 1, 2}}, std::as_bytes(std::span(two)));
  bytes->finish();
  std::uint8_t four[4];
  resampled(io::open_volume(small), how, false)
      ->read({0, 1}, {{0, 0, 0}, {1, 1, 4}}, std::as_writable_bytes(std::span(four)));
  CHECK(static_cast<int>(four[0]) == 10);
  CHECK(static_cast<int>(four[1]) == 71);  // 10 + 245 / 4
  CHECK(static_cast<int>(four[2]) == 194);
  CHECK(static_cast<int>(four[3]) == 255);
}

TEST_CASE("patches of another spacing are parts of the resampled volume", "[resampling]") {
  const Extent3 extent{20, 40, 36}, patch{8, 12, 12};
  Dataset data;
  data.name = "resampled";
  const auto image = volume_of(
      extent, [](double z, double y, double x) { return std::sin(0.2 * z) + std::cos(0.15 * y) * std::sin(0.1 * x); });
  Tensor<float> label({1, 1, extent});
  std::iota(label.data(), label.data() + label.elements(), 0.0f);
  const VoxelLengths targets[] = {{1, 1.5, 1.5}, {1.25, 0.5, 2}, {0.5, 1, 1}};
  for (std::size_t k = 0; k < 6; ++k) {
    const VoxelLengths& target = targets[k / 2];
    const bool cubic = k % 2 == 1;
    data.train.clear();
    Tensor<float> own(image.shape()), own_label(label.shape());
    std::copy_n(image.data(), image.elements(), own.data());
    std::copy_n(label.data(), label.elements(), own_label.data());
    data.train.push_back({StoredVolume(std::move(own)), StoredVolume(std::move(own_label)), {}, "v"});
    data.train[0].spacing = {1, 1, 1};
    data.train[0].resampling = resampling_of(extent, {1, 1, 1}, target);
    data.train[0].resampling->cubic = data.cubic = cubic;
    Resampling how = *data.train[0].resampling;
    const auto whole = resample(how, image.view(), std::pmr::get_default_resource());
    how.nearest = true;
    const auto labels = resample(how, label.view(), std::pmr::get_default_resource());
    double worst = 0;
    bool nearest = true;
    for (std::uint64_t i = 0; i < 10; ++i) {
      const PatchDraw draw = PatchDraw::draw(data, patch, 1, i, 0);
      const auto made = test::make_patch(data, draw, patch);
      for (index_t v = 0; v < patch.volume(); ++v) {
        const index_t z = v / (patch.y * patch.x), y = v / patch.x % patch.y, x = v % patch.x;
        const Extent3 at = draw.origin + Extent3{z, y, x};
        const double found = static_cast<double>(made.image.data()[v]);
        // Beyond the outer voxels, patches mirror and resample() continues the volume.
        bool inner = true;
        for (int axis = 0; axis < 3; ++axis) {
          const double place = how.place(axis, at[axis]);
          inner = inner && place >= 1 && place <= static_cast<double>(extent[axis] - 2);
        }
        if (!inner) continue;
        worst = std::max(worst, std::abs(found - static_cast<double>(whole.view()(0, 0, at.z, at.y, at.x))));
        const float there = labels.view()(0, 0, at.z, at.y, at.x);
        // Places in the middle of two voxels may go to either.
        bool tie = false;
        for (int axis = 0; axis < 3; ++axis) {
          const double place = how.place(axis, at[axis]);
          tie = tie || std::abs(place - std::floor(place) - 0.5) < 1e-3;
        }
        nearest = nearest && (tie || made.label.data()[v] == there);
      }
    }
    CHECK(worst < 1e-4);
    CHECK(nearest);
  }
}

TEST_CASE("the faces of a volume are continued for voxels of another spacing, whatever pads it", "[resampling]") {
  const Extent3 extent{2, 11, 11}, patch{2, 6, 6};
  for (int k = 0; k < 6; ++k) {
    Dataset data;
    data.name = "faces";
    data.sampling.pad = static_cast<Pad>(k / 2);
    data.cubic = k % 2 == 1;
    Tensor<float> image({1, 1, extent}), label({1, 1, extent});
    image.fill(3);
    label.fill(1);
    data.train.push_back({StoredVolume(std::move(image)), StoredVolume(std::move(label)), {}, "v"});
    data.train[0].resampling = resampling_of(extent, {1, 1, 1}, {1, 2, 2});
    REQUIRE(data.train[0].grid() == patch);
    const auto made = test::make_patch(data, PatchDraw::draw(data, patch, 1, 0, 0), patch);
    for (index_t i = 0; i < patch.volume(); ++i) {
      REQUIRE(made.image.data()[i] == Approx(3).margin(data.cubic ? 1e-5 : 0));
      REQUIRE(made.label.data()[i] == 1);
    }
  }
}

TEST_CASE("boxes of patches have a limit, whatever the spacing and the changes", "[resampling]") {
  AugmentSpec augment;
  augment.flip_y = true;
  augment.rotate90 = true;
  augment.rotate = {1, {40, 25, 15}};
  augment.scale = {1, {0.8, 1.3}};
  augment.elastic = {0.5, {5, 6, 7}, 1.2};
  augment.misalign = {0.5, 4};
  const Extent3 patch{6, 12, 12}, extent{60, 90, 90};
  const VoxelLengths targets[] = {{1, 1.5, 0.75}, {4, 1, 3}, {0.4, 2, 2}};
  for (std::size_t k = 0; k < 6; ++k) {
    const VoxelLengths& target = targets[k / 2];
    const bool cubic = k % 2 == 1;
    const float margin = cubic ? 1 : 0;  // of voxels that are read beside a place
    Dataset data;
    data.name = "limits";
    data.augment = augment;
    data.sampling.foreground = 0.5;
    data.sampling.pad = Pad::mirror;
    data.train.push_back({StoredVolume(noise(extent)), StoredVolume(noise(extent)), {}, "v"});
    data.train[0].spacing = {2, 1, 1};
    data.train[0].resampling = resampling_of(extent, data.train[0].spacing, target);
    const auto& how = data.train[0].resampling;
    const Extent3 most = PatchMap::largest_box(augment, patch, data.train[0].spacing, how, cubic);
    for (std::uint64_t i = 0; i < 50; ++i) {
      const PatchDraw draw = PatchDraw::draw(data, patch, 1, i, 0);
      const PatchMap map(draw, augment, patch, data.train[0].spacing, how, cubic);
      CHECK(map.interpolation() == (cubic ? ops::Interpolation::cubic : ops::Interpolation::linear));
      for (int axis = 0; axis < 3; ++axis) REQUIRE(map.box().extent[axis] <= most[axis]);
      float at[3];
      for (index_t v = 0; v < patch.volume(); v += 7) {
        map.places(v / (patch.y * patch.x), v / patch.x % patch.y, v % patch.x, 1, &at[0], &at[1], &at[2]);
        for (int axis = 0; axis < 3; ++axis) {
          REQUIRE(at[axis] >= margin);
          REQUIRE(at[axis] <= static_cast<float>(map.box().extent[axis] - 1) - margin);
        }
      }
    }
  }
}

}  // namespace convolume::nets
