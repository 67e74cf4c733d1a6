// Tests dense volumes of one to three dimensions in both orders, and the laws that transforms obey.
#include "testing/sanitizers.hpp"
#include <catch2/catch.hpp>

#include "tests/fft/fft_harness.hpp"

using namespace convolume;
using namespace convolume::test;

namespace {

const std::vector<Extent3> volume_shapes{
    {1, 1, 1},   {1, 1, 2},   {1, 2, 1},    {2, 1, 1},    {2, 2, 2},    {1, 1, 17},  {1, 13, 1},  {7, 1, 1},
    {1, 5, 6},   {4, 1, 9},   {10, 6, 1},   {2, 3, 4},    {3, 3, 3},    {5, 7, 11},  {8, 8, 8},   {16, 4, 5},
    {3, 17, 9},  {9, 10, 31}, {6, 35, 2},   {1, 16, 24},  {70, 3, 4},   {3, 66, 5},  {2, 5, 130}, {97, 2, 3},
    {2, 101, 3}, {1, 3, 89},  {12, 12, 12}, {15, 15, 15}, {16, 16, 16}, {13, 11, 6}, {20, 18, 17}};

template <class T>
void check_volume(fft::Problem problem, Data data) {
  problem.type = data_type_of<T>();
  const auto sample = make_sample<T>(problem, data, static_cast<std::uint64_t>(problem.extent.x));
  for (const Way& way : all_ways()) {
    INFO(way.name() << ": " << to_text(problem) << (data == Data::normal ? " normal" : " small integers"));
    const SimdScope scope(way.target);
    const auto plan = fft::Plan::make(problem, {.backend = way.backend});
    const auto outcome = run(plan, sample.in);
    REQUIRE(outcome.complaint == "");
    ErrorSum error;
    error.add(outcome.out, sample);
    REQUIRE(error.relative() / epsilon<T> <= slack(plan) * accuracy(problem.extent));
  }
}

/// Returns the forward transform of one dense volume with the best instruction set.
template <class T>
std::vector<std::complex<T>> transform(fft::Kind kind, const Extent3& e, const std::vector<std::complex<T>>& in,
                                       fft::Order order = fft::Order::natural) {
  return run(fft::Plan::make({.type = data_type_of<T>(), .kind = kind, .extent = e, .order = order}), in).out;
}

std::vector<std::complex<double>> noise(const Extent3& e, std::uint64_t seed, bool real) {
  std::vector<std::complex<double>> points;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(e.volume()); ++i) {
    points.emplace_back(normal({.seed = seed}, 2 * i), real ? 0.0 : normal({.seed = seed}, 2 * i + 1));
  }
  return points;
}

/// Shapes that are too large for the reference.
const std::vector<Extent3> large{{30, 32, 36}, {31, 29, 37}, {1, 100, 128}, {64, 5, 81}};

double relative_difference(const std::vector<std::complex<double>>& a, const std::vector<std::complex<double>>& b) {
  ErrorSum error;
  error.add(a, b);
  return error.relative() / epsilon<double>;
}

}  // namespace

TEST_CASE("volumes agree with the reference in every kind, order and type on every instruction set") {
  for (std::size_t i = 0; i < volume_shapes.size(); ++i) {
    for (const auto kind : all_kinds) {
      for (const auto order : {fft::Order::natural, fft::Order::rotated}) {
        const fft::Problem problem{.kind = kind, .extent = volume_shapes[i], .order = order};
        const Data data = i % 3 == 1 ? Data::small_integers : Data::normal;
        check_volume<float>(problem, data);
        check_volume<double>(problem, data);
      }
    }
  }
}

TEST_CASE("a dense spectrum has the documented shape") {
  for (const auto& e : volume_shapes) {
    for (const auto kind : all_kinds) {
      for (const auto type : {DataType::f32, DataType::f64}) {
        fft::Problem problem{.type = type, .kind = kind, .extent = e, .batch = 3};
        CAPTURE(to_text(problem));
        const Extent3 s = spectrum_extent(problem);
        const auto natural = fft::Plan::make(problem);
        CHECK(natural.spectrum_stride() == Extent3{s.y * s.x, s.x, 1});
        CHECK(natural.spectrum_elements() == s.volume());
        const auto complex_bytes = static_cast<index_t>(2 * size_of(type));
        CHECK(static_cast<index_t>(natural.spectrum_bytes()) == 3 * s.volume() * complex_bytes);
        CHECK(static_cast<index_t>(natural.space_bytes()) ==
              3 * e.volume() * (is_real(problem) ? complex_bytes / 2 : complex_bytes));
        problem.order = fft::Order::rotated;
        const auto rotated = fft::Plan::make(problem);
        CHECK(rotated.spectrum_stride().z == 1);
        CHECK(rotated.spectrum_stride().x >= e.z);
        if (e.z > 1) CHECK(rotated.spectrum_stride().x * complex_bytes % 64 == 0);
        CHECK(rotated.spectrum_stride().y == rotated.spectrum_stride().x * s.x);
        CHECK(rotated.spectrum_elements() == rotated.spectrum_stride().y * e.y);
        CHECK(rotated.space_bytes() == natural.space_bytes());
      }
    }
  }
}

TEST_CASE("there and back is the number of points times the input") {
  for (const auto& e : large) {
    for (const auto order : {fft::Order::natural, fft::Order::rotated}) {
      for (const auto kind : {fft::Kind::r2c, fft::Kind::c2c_forward}) {
        CAPTURE(to_string(e), name_of(kind), order == fft::Order::rotated);
        auto in = noise(e, 1, kind == fft::Kind::r2c);
        const auto back = transform(opposite(kind), e, transform(kind, e, in, order), order);
        for (auto& value : in) value *= static_cast<double>(e.volume());
        CHECK(relative_difference(back, in) <= 4 * accuracy(e));
      }
    }
  }
}

TEST_CASE("a transform is linear") {
  for (const auto& e : large) {
    for (const auto kind : all_kinds) {
      CAPTURE(to_string(e), name_of(kind));
      const bool real = kind == fft::Kind::r2c || kind == fft::Kind::c2r;
      const Extent3 shape = kind == fft::Kind::c2r ? Extent3{e.z, e.y, e.x / 2 + 1} : e;
      auto a = noise(shape, 2, real), b = noise(shape, 3, real);
      if (kind == fft::Kind::c2r) {
        a = transform(fft::Kind::r2c, e, noise(e, 2, true));
        b = transform(fft::Kind::r2c, e, noise(e, 3, true));
      }
      std::vector<std::complex<double>> sum;
      for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(2.0 * a[i] - 3.0 * b[i]);
      auto expected = transform(kind, e, a);
      const auto fb = transform(kind, e, b);
      for (std::size_t i = 0; i < fb.size(); ++i) expected[i] = 2.0 * expected[i] - 3.0 * fb[i];
      CHECK(relative_difference(transform(kind, e, sum), expected) <= 4 * accuracy(e));
    }
  }
}

TEST_CASE("energy is the same on both sides") {
  for (const auto& e : large) {
    CAPTURE(to_string(e));
    const auto in = noise(e, 4, true);
    double before = 0, after = 0, after_complex = 0;
    for (const auto& value : in) before += std::norm(value) * static_cast<double>(e.volume());
    const auto half = transform(fft::Kind::r2c, e, in);
    for_points(1, {e.z, e.y, e.x / 2 + 1}, [&](std::size_t i, index_t, index_t, index_t, index_t x) {
      after += std::norm(half[i]) * (x == 0 || 2 * x == e.x ? 1 : 2);
    });
    for (const auto& value : transform(fft::Kind::c2c_forward, e, in)) after_complex += std::norm(value);
    CHECK(after == Approx(before).epsilon(1e-13));
    CHECK(after_complex == Approx(before).epsilon(1e-13));
  }
}

TEST_CASE("an impulse becomes a plane wave, and at the origin ones") {
  for (const auto& e : large) {
    CAPTURE(to_string(e));
    std::vector<std::complex<double>> in(static_cast<std::size_t>(e.volume()));
    in[0] = 1;
    for (const auto& value : transform(fft::Kind::r2c, e, in)) REQUIRE(std::abs(value - 1.0) < 1e-14);
    in[0] = 0;
    const Extent3 at{e.z / 2, e.y - 1, e.x / 3};
    in[static_cast<std::size_t>((at.z * e.y + at.y) * e.x + at.x)] = 1;
    const auto wave = transform(fft::Kind::c2c_backward, e, in);
    for_points(1, e, [&](std::size_t i, index_t, index_t z, index_t y, index_t x) {
      const auto turn = [](index_t a, index_t b, index_t n) {
        return static_cast<double>(a * b % n) / static_cast<double>(n);
      };
      const double angle = 6.283185307179586476925 * (turn(at.z, z, e.z) + turn(at.y, y, e.y) + turn(at.x, x, e.x));
      REQUIRE(std::abs(wave[i] - std::polar(1.0, angle)) < 1e-13);
    });
  }
}

TEST_CASE("a cyclic shift turns phases") {
  for (const auto& e : large) {
    CAPTURE(to_string(e));
    const auto in = noise(e, 5, true);
    const Extent3 by{e.z > 1 ? 1 : 0, 2, 5};
    auto shifted = in;
    for_points(1, e, [&](std::size_t i, index_t, index_t z, index_t y, index_t x) {
      shifted[static_cast<std::size_t>(((z + by.z) % e.z * e.y + (y + by.y) % e.y) * e.x + (x + by.x) % e.x)] = in[i];
    });
    auto expected = transform(fft::Kind::r2c, e, in);
    for_points(1, {e.z, e.y, e.x / 2 + 1}, [&](std::size_t i, index_t, index_t z, index_t y, index_t x) {
      const auto turn = [](index_t a, index_t b, index_t n) {
        return static_cast<double>(a * b % n) / static_cast<double>(n);
      };
      expected[i] *=
          std::polar(1.0, -6.283185307179586476925 * (turn(by.z, z, e.z) + turn(by.y, y, e.y) + turn(by.x, x, e.x)));
    });
    CHECK(relative_difference(transform(fft::Kind::r2c, e, shifted), expected) <= 4 * accuracy(e));
  }
}
