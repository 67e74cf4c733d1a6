#include "ops/sampling.hpp"

#include "tests/ops/ops_test.hpp"

namespace convolume::ops::test {
namespace {

/// Weight of a voxel at a distance from a place: 1 at the nearest voxel, linear, or Keys' cubic kernel with a = -0.5.
double weight_at(Interpolation how, double distance) {
  const double x = std::abs(distance);
  if (how == Interpolation::nearest) return distance >= -0.5 && distance < 0.5 ? 1 : 0;
  if (how == Interpolation::linear) return std::max(0.0, 1 - x);
  if (x < 1) return 1.5 * x * x * x - 2.5 * x * x + 1;
  return x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
}

/// The voxel at a place between voxels, in double. `how` is nearest, linear or cubic along each axis.
double voxel_at(const std::vector<float>& voxels, const Extent3& e, std::array<double, 3> place,
                const std::array<Interpolation, 3>& how) {
  for (std::size_t a = 0; a < 3; ++a) {
    place[a] = std::clamp(place[a], 0.0, static_cast<double>(e[static_cast<int>(a)] - 1));
  }
  const auto below = [&](std::size_t a) { return static_cast<index_t>(std::floor(place[a])); };
  const auto weight = [&](std::size_t a, index_t i) { return weight_at(how[a], place[a] - static_cast<double>(i)); };
  const auto inside = [](index_t i, index_t n) { return std::clamp<index_t>(i, 0, n - 1); };
  double sum = 0;
  for (index_t z = below(0) - 1; z < below(0) + 3; ++z) {
    for (index_t y = below(1) - 1; y < below(1) + 3; ++y) {
      for (index_t x = below(2) - 1; x < below(2) + 3; ++x) {
        const index_t at = (inside(z, e.z) * e.y + inside(y, e.y)) * e.x + inside(x, e.x);
        sum += weight(0, z) * weight(1, y) * weight(2, x) * static_cast<double>(voxels[static_cast<std::size_t>(at)]);
      }
    }
  }
  return sum;
}

/// What an interpolation is along Z, Y and X.
std::array<Interpolation, 3> axes_of(Interpolation how) {
  using enum Interpolation;
  if (how == linear_in_slice) return {nearest, linear, linear};
  if (how == cubic_in_slice) return {nearest, cubic, cubic};
  return {how, how, how};
}

constexpr Interpolation all_interpolations[] = {Interpolation::nearest, Interpolation::linear,
                                                Interpolation::linear_in_slice, Interpolation::cubic,
                                                Interpolation::cubic_in_slice};

}  // namespace

TEST_CASE("voxels between voxels match a double reference", "[ops]") {
  on_every_target([] {
    Random random(3);
    for (const Extent3 e : {Extent3{1, 1, 1}, Extent3{1, 5, 7}, Extent3{6, 1, 9}, Extent3{7, 8, 5}}) {
      const auto voxels = random.uniform<float>(e.volume(), -2, 2);
      for (const index_t n : {1, 2, 3, 15, 16, 17, 50}) {
        // Places lie up to a voxel outside, and some are voxels.
        std::vector<float> places[3];
        for (int axis = 0; axis < 3; ++axis) {
          places[axis] = random.uniform<float>(n, -1, static_cast<double>(e[axis]));
          for (std::size_t i = 0; i < places[axis].size(); i += 5) places[axis][i] = std::round(places[axis][i]);
        }
        for (const Interpolation how : all_interpolations) {
          std::vector<float> to(static_cast<std::size_t>(n) + 1, nan<float>);
          sample_row(how, voxels.data(), e, places[0].data(), places[1].data(), places[2].data(), to.data(), n);
          for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
            const double expected = voxel_at(voxels, e,
                                             {static_cast<double>(places[0][i]), static_cast<double>(places[1][i]),
                                              static_cast<double>(places[2][i])},
                                             axes_of(how));
            REQUIRE(static_cast<double>(to[i]) == Approx(expected).margin(4e-6));
          }
          CHECK(std::isnan(to.back()));
        }
      }
    }
  });
}

TEST_CASE("at its own place, a voxel is read exactly", "[ops]") {
  on_every_target([] {
    Random random(6);
    for (const Extent3 e : {Extent3{1, 1, 1}, Extent3{1, 4, 1}, Extent3{5, 4, 9}}) {
      const auto voxels = random.uniform<float>(e.volume(), -2, 2);
      std::vector<float> places[3];
      for (index_t i = 0; i < e.volume(); ++i) {
        places[0].push_back(static_cast<float>(i / (e.y * e.x)));
        places[1].push_back(static_cast<float>(i / e.x % e.y));
        places[2].push_back(static_cast<float>(i % e.x));
      }
      for (const Interpolation how : all_interpolations) {
        std::vector<float> to(voxels.size());
        sample_row(how, voxels.data(), e, places[0].data(), places[1].data(), places[2].data(), to.data(), e.volume());
        CHECK(to == voxels);
      }
    }
  });
}

TEST_CASE("changes of intensities match a double reference", "[ops]") {
  on_every_target([] {
    Random random(4);
    for (const index_t n : {1, 3, 7, 16, 33, 257, 1000}) {
      const auto before = random.uniform<float>(n, -3, 5);
      const auto size = static_cast<std::size_t>(n);
      const auto value = [&](std::size_t i) { return static_cast<double>(before[i]); };

      auto v = before;
      scale_and_shift(v.data(), n, 1.5f, -0.25f);
      for (std::size_t i = 0; i < size; ++i) {
        REQUIRE(static_cast<double>(v[i]) == Approx(1.5 * value(i) - 0.25).margin(1e-6));
      }

      v = before;
      apply_gamma(v.data(), n, -3, 8, 1.7f);
      for (std::size_t i = 0; i < size; ++i) {
        REQUIRE(static_cast<double>(v[i]) == Approx(-3 + 8 * std::pow((value(i) + 3) / 8, 1.7)).margin(1e-5));
      }
      v.assign(size, -3);
      apply_gamma(v.data(), n, -3, 8, 0.5f);
      for (const float x : v) REQUIRE(x == Approx(-3).margin(1e-6));

      const ValueRange range = range_of(before.data(), n);
      double sum = 0;
      for (std::size_t i = 0; i < size; ++i) sum += value(i);
      CHECK(range.mean == Approx(sum / static_cast<double>(n)).margin(1e-12));
      CHECK(range.least == *std::min_element(before.begin(), before.end()));
      CHECK(range.largest == *std::max_element(before.begin(), before.end()));

      const RandomKey key{.seed = 9, .a = 1, .b = 2};
      v = before;
      add_noise(v.data(), n, 0.5f, key, 70);
      for (std::size_t i = 0; i < size; ++i) {
        const auto words = philox(key, 70 + i / 4);
        const std::size_t pair = i % 4 / 2 * 2;
        const double u = static_cast<double>((words[pair] >> 8) + 1) * 0x1p-24;
        const double angle = 6.283185307179586 * static_cast<double>(words[pair + 1] >> 8) * 0x1p-24;
        const double normal = std::sqrt(-2 * std::log(u)) * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
        REQUIRE(static_cast<double>(v[i]) == Approx(value(i) + 0.5 * normal).margin(4e-6));
      }
    }
  });
}

TEST_CASE("symmetric filters match a double reference", "[ops]") {
  on_every_target([] {
    Random random(5);
    const float weights[4] = {0.4f, 0.2f, 0.07f, 0.03f};
    for (const index_t stride : {1, 5}) {
      for (const index_t n : {1, 9, 16, 40}) {
        const auto line = random.uniform<float>(n + 6 * stride, -1, 1);
        std::vector<float> to(static_cast<std::size_t>(n) + 1, nan<float>);
        filter(line.data() + 3 * stride, stride, weights, 3, to.data(), n);
        for (index_t i = 0; i < n; ++i) {
          double sum = 0;
          for (index_t k = -3; k <= 3; ++k) {
            sum += static_cast<double>(weights[std::abs(k)]) *
                   static_cast<double>(line[static_cast<std::size_t>(i + (3 + k) * stride)]);
          }
          REQUIRE(static_cast<double>(to[static_cast<std::size_t>(i)]) == Approx(sum).margin(1e-6));
        }
        CHECK(std::isnan(to.back()));
      }
    }
  });
}

}  // namespace convolume::ops::test
