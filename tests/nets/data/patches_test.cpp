// Patches: where they are drawn, the map of their voxels, changes of intensities, and reading from files.
#include "testing/patches.hpp"

#include <cmath>
#include <cstring>
#include <fstream>
#include <set>

#include "testing/temporary_folder.hpp"
#include "testing/training_session.hpp"
#include <catch2/catch.hpp>

#include "nets/data/mirror.hpp"
#include "nets/io/volume_sink.hpp"

namespace convolume::nets {
namespace {

using test::make_patch;

float smooth(double z, double y, double x) {
  return static_cast<float>(std::sin(0.21 * z + 0.3) + std::cos(0.17 * y) * std::sin(0.13 * x + 0.1));
}

/// A data set of one volume: a smooth image, and labels that are the number of each voxel.
Dataset smooth_data(const Extent3& extent, const AugmentSpec& augment = {}, Pad pad = Pad::none) {
  Dataset data;
  data.name = "smooth";
  data.augment = augment;
  data.sampling.pad = pad;
  Tensor<float> image({1, 1, extent}), label({1, 1, extent});
  for (index_t i = 0; i < image.elements(); ++i) {
    const index_t z = i / (extent.y * extent.x), y = i / extent.x % extent.y, x = i % extent.x;
    image.data()[i] = smooth(static_cast<double>(z), static_cast<double>(y), static_cast<double>(x));
    label.data()[i] = static_cast<float>(i);
  }
  data.train.push_back({StoredVolume(std::move(image)), StoredVolume(std::move(label)), {}, "smooth"});
  return data;
}

/// A data set of one volume with two channels of noise.
Dataset noise_data(const Extent3& extent, const AugmentSpec& augment = {}) {
  Dataset data = smooth_data(extent, augment);
  Tensor<float> image({1, 2, extent});
  for (index_t i = 0; i < image.elements(); ++i) {
    image.data()[i] = static_cast<float>(uniform({.seed = 8}, static_cast<std::uint64_t>(i)));
  }
  data.train[0].image = StoredVolume(std::move(image));
  return data;
}

/// Returns a channel that was reduced to the nearest voxels of `low` voxels, and interpolated back, in double.
std::vector<double> of_low_resolution(const Tensor<float>& image, index_t c, const Extent3& low) {
  const Extent3 e = image.shape().extent;
  std::vector<double> all;
  for (index_t v = 0; v < e.volume(); ++v) {
    const index_t at[3] = {v / (e.y * e.x), v / e.x % e.y, v % e.x};
    double sum = 0;
    for (int corner = 0; corner < 8; ++corner) {
      double weight = 1;
      Extent3 nearest;
      for (int axis = 0; axis < 3; ++axis) {
        const index_t n = e[axis], m = low[axis];
        const double centre = (static_cast<double>(at[axis]) + 0.5) * static_cast<double>(m) / static_cast<double>(n);
        const double place = std::clamp(centre - 0.5, 0.0, static_cast<double>(m - 1));
        const bool upper = (corner >> axis & 1) != 0;
        const double share = place - std::floor(place);
        weight *= upper ? share : 1 - share;
        const index_t t = std::min(m - 1, static_cast<index_t>(place) + (upper ? 1 : 0));
        nearest[axis] = (2 * t + 1) * n / (2 * m);  // the voxel that holds the centre of voxel t
      }
      sum += weight * static_cast<double>(image.view()(0, c, nearest.z, nearest.y, nearest.x));
    }
    all.push_back(sum);
  }
  return all;
}

/// Draws until a change occurs.
template <class Wanted>
PatchDraw draw_with(const Dataset& data, const Extent3& patch, const Wanted& wanted) {
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const PatchDraw draw = PatchDraw::draw(data, patch, 3, i, 0);
    if (wanted(draw)) return draw;
  }
  FAIL("no draw has it");
  return {};
}

bool same(const Tensor<float>& a, const Tensor<float>& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.elements()) * sizeof(float)) == 0;
}

AugmentSpec everything() {
  AugmentSpec a;
  a.flip_z = a.flip_y = a.flip_x = true;
  a.rotate90 = true;
  a.rotate = {0.5, {30, 20, 10}};
  a.scale = {0.5, {0.7, 1.4}};
  a.elastic = {0.5, {4, 8, 8}, 1.5};
  a.misalign = {0.5, 3};
  a.brightness = {0.5, {-0.5, 0.5}};
  a.contrast = {0.5, {0.7, 1.3}};
  a.gamma = {0.5, {0.7, 1.5}};
  a.noise = {0.5, {0, 0.2}};
  a.blur = {0.5, {0.5, 1}};
  a.low_resolution = {0.5, {1, 2}};
  a.blurred_section = {0.5, {1, 2}};
  a.missing_section = {0.5, 2};
  a.cut_out = {0.5, {2, 4, 4}};
  return a;
}

}  // namespace

TEST_CASE("volumes are chosen equally, by size or by weight", "[patches]") {
  Dataset data = smooth_data({4, 10, 10});
  data.train.push_back(std::move(smooth_data({4, 40, 40}).train[0]));
  data.train.push_back(std::move(smooth_data({4, 10, 10}).train[0]));
  data.train[0].weight = 0;
  data.train[1].weight = 1;
  data.train[2].weight = 3;
  const auto shares = [&](VolumeChoice choice) {
    data.sampling.volumes = choice;
    std::vector<double> count(3);
    for (std::uint64_t i = 0; i < 4000; ++i) ++count[PatchDraw::draw(data, {2, 8, 8}, 1, i, 0).volume];
    for (double& c : count) c /= 4000;
    return count;
  };
  const auto near = [](const std::vector<double>& got, const std::vector<double>& expected) {
    for (std::size_t i = 0; i < 3; ++i) CHECK(got[i] == Approx(expected[i]).margin(0.035));
  };
  near(shares(VolumeChoice::equal), {1.0 / 3, 1.0 / 3, 1.0 / 3});
  near(shares(VolumeChoice::weights), {0, 0.25, 0.75});
  near(shares(VolumeChoice::by_size), {9.0 / 1107, 1089.0 / 1107, 9.0 / 1107});
}

TEST_CASE("the given share of patches has a voxel of a class that is drawn uniformly in its centre", "[patches]") {
  Dataset data = smooth_data({9, 40, 40});
  Tensor<float> label({1, 1, {9, 40, 40}});
  label.fill(0);
  label.view()(0, 0, 4, 20, 20) = 1;                                   // one voxel of class 1
  for (index_t x = 10; x < 30; ++x) label.view()(0, 0, 5, 12, x) = 2;  // more of class 2
  data.train[0].label = std::move(label);
  data.train[0].labels = std::make_shared<LabelSummary>(*summarise_labels(pieces_of(data.train[0].label), {}, nullptr));
  data.sampling.foreground = 0.4;
  int first = 0, second = 0;
  constexpr int draws = 3000;
  for (std::uint64_t i = 0; i < draws; ++i) {
    const Extent3 centre = PatchDraw::draw(data, {3, 8, 8}, 1, i, 0).origin + Extent3{1, 4, 4};
    first += centre == Extent3{4, 20, 20} ? 1 : 0;
    second += centre.z == 5 && centre.y == 12 && centre.x >= 10 && centre.x < 30 ? 1 : 0;
  }
  CHECK(std::abs(first - 0.2 * draws) < 110);
  CHECK(std::abs(second - 0.2 * draws) < 110);
  CHECK_NOTHROW(check_patch(data, {3, 8, 8}));
  data.train[0].labels = std::make_shared<LabelSummary>();
  CHECK_THROWS_WITH(check_patch(data, {3, 8, 8}), Catch::Contains("foreground = 0.4"));
}

TEST_CASE("volumes that are smaller than a patch are continued by mirroring, or by zeros", "[patches]") {
  const Extent3 extent{2, 5, 9}, patch{4, 8, 8};
  for (const Pad pad : {Pad::mirror, Pad::zero}) {
    const Dataset data = smooth_data(extent, {}, pad);
    CHECK_NOTHROW(check_patch(data, patch));
    std::set<index_t> origins;
    for (std::uint64_t i = 0; i < 60; ++i) {
      const PatchDraw draw = PatchDraw::draw(data, patch, 1, i, 0);
      origins.insert(draw.origin.z);
      const auto made = make_patch(data, draw, patch);
      bool right = true;
      for (index_t z = 0; z < patch.z; ++z) {
        for (index_t y = 0; y < patch.y; ++y) {
          for (index_t x = 0; x < patch.x; ++x) {
            const Extent3 at = draw.origin + Extent3{z, y, x};
            const bool inside = at.z >= 0 && at.z < 2 && at.y >= 0 && at.y < 5 && at.x >= 0 && at.x < 9;
            const index_t voxel = (mirrored_index(at.z, 2) * 5 + mirrored_index(at.y, 5)) * 9 + mirrored_index(at.x, 9);
            const float expected = !inside && pad == Pad::zero ? 0.0f : static_cast<float>(voxel);
            right = right && made.label.view()(0, 0, z, y, x) == expected;
          }
        }
      }
      CHECK(right);
    }
    CHECK(origins == std::set<index_t>{-2, -1, 0});
  }
  CHECK_THROWS_WITH(check_patch(smooth_data(extent), patch), Catch::Contains("pad = \"mirror\""));
}

TEST_CASE("rotations, scales and deformations read the image at the places of their map", "[patches]") {
  AugmentSpec augment;
  augment.flip_y = true;
  augment.rotate90 = true;
  augment.rotate = {1, {40, 25, 15}};
  augment.scale = {1, {0.8, 1.3}};
  augment.elastic = {0.5, {5, 6, 7}, 1.2};
  augment.misalign = {0.5, 4};
  const Extent3 patch{10, 24, 24};
  Dataset data = smooth_data({60, 90, 90}, augment);
  for (const std::array<double, 3> spacing : {std::array<double, 3>{1, 1, 1}, std::array<double, 3>{2, 1, 1.5}}) {
    data.train[0].spacing = spacing;
    for (std::uint64_t i = 0; i < 8; ++i) {
      const PatchDraw draw = PatchDraw::draw(data, patch, 1, i, 0);
      const PatchMap map(draw, augment, patch, spacing);
      const Extent3 most = PatchMap::largest_box(augment, patch, spacing);
      for (int axis = 0; axis < 3; ++axis) REQUIRE(map.box().extent[axis] <= most[axis]);
      const auto made = make_patch(data, draw, patch);
      double worst = 0;
      bool nearest = true, inside = true;
      for (index_t z = 0; z < patch.z; ++z) {
        for (index_t y = 0; y < patch.y; ++y) {
          float at[3][24];
          map.places(z, y, 0, 24, at[0], at[1], at[2]);
          for (index_t x = 0; x < 24; ++x) {
            double place[3];
            index_t voxel = 0;
            for (int axis = 0; axis < 3; ++axis) {
              const auto local = static_cast<double>(at[axis][x]);
              inside = inside && local >= 0 && local <= static_cast<double>(map.box().extent[axis] - 1);
              const index_t e = data.train[0].extent()[axis];
              place[axis] = local + static_cast<double>(map.box().begin[axis]);
              const auto rounded = static_cast<index_t>(std::floor(local + 0.5)) + map.box().begin[axis];
              voxel = voxel * e + mirrored_index(rounded, e);
              // Beyond the faces the volume is mirrored.
              if (place[axis] < 0) place[axis] = -place[axis];
              if (place[axis] > static_cast<double>(e - 1)) place[axis] = 2 * static_cast<double>(e - 1) - place[axis];
            }
            worst = std::max(worst, std::abs(static_cast<double>(made.image.view()(0, 0, z, y, x)) -
                                             static_cast<double>(smooth(place[0], place[1], place[2]))));
            nearest = nearest && made.label.view()(0, 0, z, y, x) == static_cast<float>(voxel);
          }
        }
      }
      CHECK(inside);
      CHECK(nearest);
      CHECK(worst < 0.02);  // the error of linear interpolation: second derivatives up to 0.044 + 0.029 + 0.017, over 8
    }
  }
}

TEST_CASE("a rotation keeps lengths, and a scale makes things grow", "[patches]") {
  AugmentSpec augment;
  augment.rotate = {1, {90, 90, 90}};
  const Extent3 patch{9, 9, 9};
  Dataset data = smooth_data({9, 40, 40}, augment);
  const std::array<double, 3> spacing{2.5, 1, 1};
  const auto distance = [&](const PatchMap& map) {
    float first[3], last[3];
    map.places(0, 0, 0, 1, &first[0], &first[1], &first[2]);
    map.places(8, 8, 8, 1, &last[0], &last[1], &last[2]);
    double sum = 0;
    for (std::size_t a = 0; a < 3; ++a) {
      const double d = static_cast<double>(last[a] - first[a]) * spacing[a];
      sum += d * d;
    }
    return std::sqrt(sum);
  };
  const double diagonal = std::sqrt(400 + 64 + 64);
  for (std::uint64_t i = 0; i < 5; ++i) {
    PatchDraw draw = PatchDraw::draw(data, patch, 1, i, 0);
    CHECK(distance(PatchMap(draw, augment, patch, spacing)) == Approx(diagonal).epsilon(1e-5));
    draw.growth = 2;
    CHECK(distance(PatchMap(draw, augment, patch, spacing)) == Approx(diagonal / 2).epsilon(1e-5));
  }
}

TEST_CASE("an axis that is more than three times as coarse takes the nearest slice", "[patches]") {
  AugmentSpec augment;
  augment.rotate = {1, {10, 10, 10}};
  const Extent3 patch{6, 16, 16};
  Dataset data = smooth_data({12, 40, 40}, augment);
  data.train[0].spacing = {3.5, 1, 1};
  const PatchDraw draw = PatchDraw::draw(data, patch, 1, 0, 0);
  const PatchMap map(draw, augment, patch, data.train[0].spacing);
  CHECK(map.interpolation() == ops::Interpolation::linear_in_slice);
  float z[16], y[16], x[16];
  bool whole = true, between = false;
  for (index_t row = 0; row < 16; ++row) {
    map.places(2, row, 0, 16, z, y, x);
    for (int i = 0; i < 16; ++i) {
      whole = whole && z[i] == std::floor(z[i]);
      between = between || y[i] != std::floor(y[i]);
    }
  }
  CHECK(whole);
  CHECK(between);
  const PatchMap cubic(draw, augment, patch, data.train[0].spacing, {}, true);
  CHECK(cubic.interpolation() == ops::Interpolation::cubic_in_slice);
  CHECK(cubic.box().extent == map.box().extent + Extent3{0, 2, 2});
  CHECK(PatchMap(draw, augment, patch, {3, 1, 1}).interpolation() == ops::Interpolation::linear);
}

TEST_CASE("changes of intensities leave labels alone and follow their draw", "[patches]") {
  const Extent3 patch{6, 20, 20};
  const auto changed = [&](const AugmentSpec& augment) {
    const Dataset plain = smooth_data({10, 40, 40}), data = smooth_data({10, 40, 40}, augment);
    const PatchDraw draw = PatchDraw::draw(data, patch, 1, 2, 0);
    auto before = make_patch(plain, draw, patch), after = make_patch(data, draw, patch);
    CHECK(same(before.label, after.label));
    std::pair<std::vector<double>, std::vector<double>> values;
    for (index_t i = 0; i < before.image.elements(); ++i) {
      values.first.push_back(static_cast<double>(before.image.data()[i]));
      values.second.push_back(static_cast<double>(after.image.data()[i]));
    }
    return values;
  };
  const auto mean_of = [](const std::vector<double>& v) {
    double sum = 0;
    for (const double x : v) sum += x;
    return sum / static_cast<double>(v.size());
  };
  {
    AugmentSpec a;
    a.brightness = {1, {0.25, 0.25}};
    const auto [before, after] = changed(a);
    for (std::size_t i = 0; i < before.size(); ++i) REQUIRE(after[i] == Approx(before[i] + 0.25).margin(1e-6));
  }
  {
    AugmentSpec a;
    a.contrast = {1, {1.5, 1.5}};
    const auto [before, after] = changed(a);
    CHECK(mean_of(after) == Approx(mean_of(before)).margin(1e-5));
    CHECK(after[7] - after[8] == Approx(1.5 * (before[7] - before[8])).margin(1e-5));
  }
  {
    AugmentSpec a;
    a.gamma = {1, {2, 2}};
    const auto [before, after] = changed(a);
    const auto [low, high] = std::minmax_element(before.begin(), before.end());
    for (std::size_t i = 0; i < before.size(); i += 37) {
      const double unit = (before[i] - *low) / (*high - *low);
      REQUIRE(after[i] == Approx(*low + (*high - *low) * unit * unit).margin(2e-5));
    }
  }
  {
    AugmentSpec a;
    a.noise = {1, {0.3, 0.3}};
    const auto [before, after] = changed(a);
    double squares = 0;
    std::vector<double> noise;
    for (std::size_t i = 0; i < before.size(); ++i) noise.push_back(after[i] - before[i]);
    for (const double n : noise) squares += n * n;
    CHECK(mean_of(noise) == Approx(0).margin(0.03));
    CHECK(std::sqrt(squares / static_cast<double>(noise.size())) == Approx(0.3).epsilon(0.05));
  }
  {
    AugmentSpec a;
    a.blur = {1, {1.5, 1.5}};
    const auto [before, after] = changed(a);
    // A Gaussian filter takes a wave of frequency w down by exp(-(w sigma)^2 / 2); the mean stays nearly.
    CHECK(mean_of(after) == Approx(mean_of(before)).margin(0.05));
    double rough = 0, rougher = 0;
    for (std::size_t i = 1; i < before.size(); ++i) {
      rough += std::abs(after[i] - after[i - 1]);
      rougher += std::abs(before[i] - before[i - 1]);
    }
    CHECK(rough < rougher);
  }
  {
    AugmentSpec a;
    a.missing_section = {1, 2};
    const auto [before, after] = changed(a);
    int missing = 0;
    for (std::size_t z = 0; z < 6; ++z) {
      missing +=
          std::all_of(after.begin() + static_cast<std::ptrdiff_t>(z * 400),
                      after.begin() + static_cast<std::ptrdiff_t>((z + 1) * 400), [](double v) { return v == 0; })
              ? 1
              : 0;
    }
    CHECK(missing == 2);
  }
  {
    AugmentSpec a;
    a.cut_out = {1, {2, 5, 6}};
    const auto [before, after] = changed(a);
    CHECK(std::count(after.begin(), after.end(), 0.0) == 60);
  }
  {
    AugmentSpec a;
    a.blurred_section = {1, {2, 2}};
    const auto [before, after] = changed(a);
    int sections = 0;
    for (std::size_t z = 0; z < 6; ++z) sections += before[z * 400 + 210] != after[z * 400 + 210] ? 1 : 0;
    CHECK(sections == 1);
  }
}

TEST_CASE("a patch of low resolution has few voxels, which are interpolated linearly", "[patches]") {
  AugmentSpec augment;
  augment.low_resolution = {1, {1.5, 3}};
  const Extent3 patch{6, 20, 17};
  for (const VoxelLengths spacing : {VoxelLengths{1, 1, 1}, VoxelLengths{4, 1, 1}, VoxelLengths{1, 1, 3.5}}) {
    Dataset plain = noise_data({10, 30, 30}), data = noise_data({10, 30, 30}, augment);
    plain.train[0].spacing = data.train[0].spacing = spacing;
    std::set<double> factors;
    for (std::uint64_t i = 0; i < 6; ++i) {
      const PatchDraw draw = PatchDraw::draw(data, patch, 1, i, 0);
      const auto before = make_patch(plain, draw, patch), after = make_patch(data, draw, patch);
      CHECK(same(before.label, after.label));
      const double factor = draw.random.within(PatchRandom::Purpose::low_resolution, 1, {1.5, 3});
      factors.insert(factor);
      Extent3 low;
      for (int axis = 0; axis < 3; ++axis) {
        const bool kept = spacing[static_cast<std::size_t>(axis)] > 3;
        low[axis] = kept ? patch[axis] : std::lround(static_cast<double>(patch[axis]) / factor);
      }
      for (index_t c = 0; c < 2; ++c) {
        const auto expected = of_low_resolution(before.image, c, low);
        for (index_t v = 0; v < patch.volume(); ++v) {
          REQUIRE(static_cast<double>(after.image.data()[c * patch.volume() + v]) ==
                  Approx(expected[static_cast<std::size_t>(v)]).margin(2e-6));
        }
      }
    }
    CHECK(factors.size() == 6);
  }
}

TEST_CASE("a factor of 1 keeps every voxel, and all other draws", "[patches]") {
  AugmentSpec one = everything(), none = everything();
  one.low_resolution = {1, {1, 1}};
  none.low_resolution = {0, {1, 2}};
  const Dataset with = noise_data({14, 40, 40}, one), without = noise_data({14, 40, 40}, none);
  for (std::uint64_t i = 0; i < 12; ++i) {
    const PatchDraw draw = PatchDraw::draw(with, {6, 16, 16}, 1, i, 0);
    CHECK(same(make_patch(with, draw, {6, 16, 16}).image, make_patch(without, draw, {6, 16, 16}).image));
  }
}

TEST_CASE("sections from one on are shifted, or one alone slips", "[patches]") {
  AugmentSpec augment;
  augment.misalign = {1, 5};
  const Extent3 patch{6, 16, 16};
  const Dataset data = smooth_data({6, 60, 60}, augment);
  for (const bool slips : {false, true}) {
    const PatchDraw draw = draw_with(data, patch, [&](const PatchDraw& d) {
      return d.slips == slips && d.misaligned > 1 && d.misaligned < 5 && d.shift[0] != 0 && d.shift[1] != 0;
    });
    const auto made = make_patch(data, draw, patch);
    for (index_t z = 0; z < 6; ++z) {
      const bool shifted = slips ? z == draw.misaligned : z >= draw.misaligned;
      const index_t y = draw.origin.y + 3 + (shifted ? draw.shift[0] : 0),
                    x = draw.origin.x + 4 + (shifted ? draw.shift[1] : 0);
      const index_t voxel = (z * 60 + mirrored_index(y, 60)) * 60 + mirrored_index(x, 60);
      CHECK(made.label.view()(0, 0, z, 3, 4) == static_cast<float>(voxel));
    }
  }
}

TEST_CASE("patches with every change have the same bits in any number of shares", "[patches]") {
  const Extent3 patch{6, 16, 16};
  const Dataset data = smooth_data({14, 40, 40}, everything());
  for (std::uint64_t i = 0; i < 12; ++i) {
    const PatchDraw draw = PatchDraw::draw(data, patch, 1, i, 1);
    const auto one = make_patch(data, draw, patch, {1, 2, 3}, {4, 10, 9}, 1);
    const auto many = make_patch(data, draw, patch, {1, 2, 3}, {4, 10, 9}, 7);
    CHECK(same(one.image, many.image));
    CHECK(same(one.label, many.label));
    CHECK(same(one.mask, many.mask));
    const float* const voxels = one.image.data();
    CHECK(std::all_of(voxels, voxels + one.image.elements(), [](float v) { return std::isfinite(v); }));
  }
}

TEST_CASE("training with every change has the same bits on 1, 2 and 8 threads, and from files", "[patches]") {
  const test::TemporaryFolder folder;
  const auto made = make_synthetic_volume({.extent = {20, 70, 70}, .cell_diameter = 12});
  const auto write = [&](const char* name, const Tensor<float>& voxels, const Extent3& chunk) {
    const auto sink = io::create_volume({folder / name, ""}, {.extent = voxels.shape().extent, .chunk = chunk});
    sink->write({0, 1}, {{0, 0, 0}, voxels.shape().extent},
                std::as_bytes(std::span(voxels.data(), static_cast<std::size_t>(voxels.elements()))));
    sink->finish();
  };
  write("image.zarr", made.image, {16, 32, 32});
  write("label.zarr", made.label, {8, 70, 16});
  const auto file = folder / "data.toml";
  std::ofstream(file.string()) << R"(
name = "d"
[[train]]
image = "image.zarr"
label = "label.zarr"
box = [[1, 19], [2, 70], [0, 69]]
[[train]]
image = "image.zarr"
label = "label.zarr"
mask = "label.zarr"
slices = [3, 18]
[intensity]
normalise = "slice"
clip = true
[sampling]
foreground = 0.5
[augment]
flip = ["z", "x"]
rotate90 = true
rotate = { probability = 0.5, degrees = [30, 10, 10] }
elastic = { probability = 0.5, grid = 8, sigma = 1 }
noise = { probability = 0.5, sigma = [0, 0.1] }
gamma = { probability = 0.5, range = [0.7, 1.5] }
misalign = { probability = 0.3, pixels = 4 }
low_resolution = { probability = 0.5, factor = [1, 2] }
)";
  const auto weights = [&](int threads, std::size_t bytes, std::size_t cache) {
    const Dataset data = load_dataset(file, {.volume_bytes = bytes});
    CHECK((data.train[0].files != nullptr) == (bytes == 0));
    SlabResource memory;
    Scheduler scheduler(threads);
    Trainer trainer(parse_net(test::small_net, "small.toml"), data, 5, {}, scheduler, &memory, cache);
    for (int i = 0; i < 6; ++i) REQUIRE(trainer.step());
    trainer.flush();
    std::vector<float> all;
    for (const Parameter& p : trainer.parameters().all()) {
      all.insert(all.end(), p.value.data(), p.value.data() + p.value.elements());
    }
    return std::pair(data.digest, all);
  };
  constexpr auto all = std::numeric_limits<std::size_t>::max();
  const auto expected = weights(1, all, 0);
  CHECK(weights(2, all, 0) == expected);
  CHECK(weights(8, 0, std::size_t{1} << 30) == expected);
  CHECK(weights(2, 0, 1) == expected);  // a cache that holds one chunk
}

TEST_CASE("a file that cannot be read ends the training with its name", "[patches]") {
  const test::TemporaryFolder folder;
  const auto made = make_synthetic_volume({.extent = {20, 70, 70}, .cell_diameter = 12});
  const auto sink = io::create_volume({folder / "v.zarr", ""}, {.extent = {20, 70, 70}, .chunk = {20, 70, 70}});
  sink->write({0, 1}, {{0, 0, 0}, {20, 70, 70}},
              std::as_bytes(std::span(made.label.data(), static_cast<std::size_t>(made.label.elements()))));
  sink->finish();
  const auto file = folder / "data.toml";
  std::ofstream(file.string()) << "name = 'd'\n[[train]]\nimage = 'v.zarr'\nlabel = 'v.zarr'\n";
  const Dataset data = load_dataset(file, {.volume_bytes = 0});
  std::ofstream((folder / "v.zarr" / "0.0.0").string()) << "damaged";
  SlabResource memory;
  Scheduler scheduler(2);
  Trainer trainer(parse_net(test::small_net, "small.toml"), data, 5, {}, scheduler, &memory);
  CHECK_THROWS_WITH(trainer.step(), Catch::Contains("v.zarr") && Catch::Contains("0.0.0"));
  CHECK_THROWS_AS(trainer.step(), Error);  // again, and without waiting
}

}  // namespace convolume::nets
