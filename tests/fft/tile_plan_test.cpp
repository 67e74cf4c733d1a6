// Tests transforms of tiles: every extent, sources and targets in space, layouts of spectra, boxes, stored results, and
// rejected arguments.
#include "testing/sanitizers.hpp"
#include "testing/simd_targets.hpp"
#include <catch2/catch.hpp>

#include "convolume/error.hpp"
#include "tests/fft/tile_harness.hpp"

using namespace convolume;
using namespace convolume::test;
using fft::TileBox;
using fft::TilePlan;

namespace {

template <class T>
fft::Problem problem_of(const Extent3& extent, const Extent3& support, fft::Kind kind) {
  return {.type = data_type_of<T>(), .kind = kind, .extent = extent, .batch = fft::tile_lanes<T>, .support = support};
}

/// Returns voxels of all lanes and their spectra, by the reference.
template <class T>
Sample<T> forward_sample(const Extent3& extent, std::vector<std::complex<T>> values) {
  Sample<T> sample;
  sample.in = std::move(values);
  std::vector<std::complex<Wide<T>>> work(sample.in.begin(), sample.in.end());
  ref_transform(work, extent, -1);
  for_points(fft::tile_lanes<T>, extent, [&](std::size_t i, index_t, index_t, index_t, index_t x) {
    sample.norm += std::norm(work[i]);
    if (x <= extent.x / 2) sample.out.push_back(work[i]);
  });
  return sample;
}

template <class T>
std::vector<std::complex<T>> random_voxels(const Extent3& extent, Data data, std::uint64_t seed) {
  std::vector<std::complex<T>> values(static_cast<std::size_t>(fft::tile_lanes<T> * extent.volume()));
  const RandomKey key{.seed = seed};
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    values[i] = data == Data::normal ? static_cast<T>(normal(key, i))
                                     : static_cast<T>(static_cast<double>(uniform_below(key, i, 17)) - 8.0);
  }
  return values;
}

/// Checks one tile, forward and inverse, on every instruction set, against the reference.
template <class T>
void check(const Extent3& extent, const Extent3& support, const TileSpace<T>& source, const TileSpace<T>& target,
           const SpectrumLayout& layout, Data data, std::uint64_t seed) {
  INFO("extent " << to_string(extent) << " support " << to_string(support) << ' ' << layout.name);
  INFO((source.blocked ? "blocked" : "plain")
       << " source, " << (target.blocked ? "blocked" : "plain") << " target, " << sizeof(T) << " bytes");
  Sample<T> forward, inverse = make_sample<T>(problem_of<T>(extent, support, fft::Kind::c2r), data, seed + 1);
  for (const auto& name : available_simd_targets()) {
    INFO(name);
    const SimdScope scope(name);
    const TilePlan<T> plan(extent, support);
    const TileRun<T> load(plan, source, layout), store(plan, target, layout);
    if (forward.in.empty()) {
      auto values = load.held(random_voxels<T>(extent, data, seed));
      load.share(values);
      forward = forward_sample<T>(extent, std::move(values));
      // Errors of a box are relative to its share in the norm of all voxels.
      inverse.out = store.held(std::move(inverse.out));
      inverse.norm *= static_cast<long double>(store.voxels_held()) /
                      static_cast<long double>(support.volume() * fft::tile_lanes<T>);
    }
    const double bound = slack_of(name) * accuracy(extent);
    const auto spectrum = load.forward(forward.in);
    REQUIRE(spectrum.complaint == "");
    ErrorSum error;
    error.add(spectrum.out, forward);
    REQUIRE(error.relative() / epsilon<T> <= bound);

    const auto voxels = store.inverse(inverse.in);
    REQUIRE(voxels.complaint == "");
    ErrorSum error_back;
    error_back.add(voxels.out, inverse);
    // The errors of few voxels scatter.
    const double scatter = 1 + 3 / std::sqrt(2.0 * static_cast<double>(std::max<index_t>(1, store.voxels_held())));
    REQUIRE(error_back.relative() / epsilon<T> <= scatter * bound);
  }
}

/// Returns a source or a target of one of five kinds.
template <class T>
TileSpace<T> space_of(int kind, const Extent3& support, bool store) {
  const Extent3 step = store ? support : Extent3{(support.z + 1) / 2, (support.y + 2) / 3, support.x};
  switch (kind % 5) {
    case 0:
      return blocked_space<T>(support, whole_box(support));
    case 1:
      return channel_space<T>(support, whole_box(support), lanes_of<T>);
    case 2:
      return tiles_space<T>(support, step, {2, 3, 5}, store);
    case 3:
      return blocked_space<T>(support, {{support.z / 3, -2, support.x / 4}, {99, (support.y + 1) / 2, support.x}}, 2);
    default:
      return channel_space<T>(support, {{-5, support.y / 3, 0}, {support.z, 70, (2 * support.x + 2) / 3}},
                              lanes_of<T> - 5);
  }
}

/// Checks every length along one axis, with small other axes. Supports, sources, targets and layouts alternate.
template <class T>
void check_lengths(int axis) {
  constexpr Extent3 others[3] = {{1, 3, 4}, {2, 1, 5}, {3, 2, 1}};
  for (index_t n = 1; n <= 64; n += sanitized && n > 34 ? 6 : 1) {
    Extent3 extent = others[axis];
    extent[axis] = n;
    Extent3 support = extent;
    if (n % 3 == 1) support = {(extent.z + 1) / 2, (extent.y + 2) / 3, extent.x};
    if (n % 3 == 2) support = {extent.z, extent.y - extent.y / 3, (extent.x + 1) / 2};
    const auto layouts = spectrum_layouts<T>(extent);
    const int turn = static_cast<int>(n) + axis;
    check<T>(extent, support, space_of<T>(turn, support, false), space_of<T>(turn + turn / 5, support, true),
             layouts[static_cast<std::size_t>(turn / 2) % layouts.size()],
             n % 4 == 0 ? Data::small_integers : Data::normal, static_cast<std::uint64_t>(n));
  }
}

std::vector<Extent3> tile_shapes() {
  if (sanitized) return {{1, 1, 1}, {6, 7, 8}, {17, 5, 9}, {4, 19, 34}, {1, 18, 16}};
  return {{1, 1, 1},   {1, 1, 2},    {2, 1, 1},    {8, 8, 8},   {7, 9, 11},  {16, 16, 16}, {12, 10, 20}, {1, 24, 24},
          {18, 1, 17}, {13, 26, 1},  {17, 17, 17}, {19, 3, 31}, {31, 31, 5}, {2, 61, 6},   {61, 2, 3},   {5, 4, 61},
          {34, 6, 38}, {20, 20, 20}, {24, 24, 24}, {3, 5, 64},  {64, 3, 5},  {5, 64, 3},   {23, 29, 4}};
}

/// Doubles the points of half a spectrum that stand for two points of the whole one.
template <class T>
std::vector<std::complex<T>> doubled(std::vector<std::complex<T>> half, const Extent3& extent) {
  for_points(fft::tile_lanes<T>, {extent.z, extent.y, extent.x / 2 + 1},
             [&](std::size_t i, index_t, index_t, index_t, index_t x) {
               if (x != 0 && 2 * x != extent.x) half[i] *= 2;
             });
  return half;
}

/// Checks that the inverse undoes the forward transform F, and <Fx, y> = <x, F'y> for the inverse F' as the adjoint of
/// F.
template <class T>
void check_identities(const Extent3& extent, const Extent3& support, int kind) {
  INFO("extent " << to_string(extent) << " support " << to_string(support) << ' ' << sizeof(T) << " bytes, end "
                 << kind);
  const auto layouts = spectrum_layouts<T>(extent);
  const auto& layout = layouts[static_cast<std::size_t>(kind) % layouts.size()];
  const TileSpace<T> space = space_of<T>(kind, support, true);
  for (const auto& name : available_simd_targets()) {
    INFO(name);
    const SimdScope scope(name);
    const TilePlan<T> plan(extent, support);
    const TileRun<T> run(plan, space, layout);
    const auto x = run.held(random_voxels<T>(extent, Data::normal, 21));
    const auto fx = run.forward(x);
    REQUIRE(fx.complaint == "");
    const auto back = run.inverse(fx.out, {.scale = T{1} / static_cast<T>(extent.volume())});
    REQUIRE(back.complaint == "");
    ErrorSum error;
    error.add(back.out, x);
    // The error in a box is the error of the whole tile, relative to the part of the tile in the box.
    const double bound = slack_of(name) * accuracy(extent);
    REQUIRE(error.relative() / epsilon<T> <= 2 * bound + 1);

    const auto y = make_sample<T>(problem_of<T>(extent, extent, fft::Kind::c2r), Data::normal, 22).in;
    const auto fy = run.inverse(y);
    REQUIRE(fy.complaint == "");
    const auto weighted = doubled(y, extent);
    const long double norm = inner_product(x, x).real() * inner_product(weighted, y).real();
    const long double difference = inner_product(fx.out, weighted).real() - inner_product(x, fy.out).real();
    const long double scale = std::sqrt(static_cast<long double>(extent.volume()) * norm);
    REQUIRE(static_cast<double>(std::abs(difference)) / epsilon<T> <= 2 * bound * static_cast<double>(scale));
  }
}

template <class T>
void check_store(const Extent3& extent, const Extent3& support, int kind) {
  INFO("extent " << to_string(extent) << ' ' << sizeof(T) << " bytes, end " << kind);
  const auto layouts = spectrum_layouts<T>(extent);
  const auto& layout = layouts[static_cast<std::size_t>(kind + 1) % layouts.size()];
  const TileSpace<T> space = space_of<T>(kind, support, true);
  const auto spectrum = make_sample<T>(problem_of<T>(extent, extent, fft::Kind::c2r), Data::normal, 31).in;
  const auto old = random_voxels<T>(extent, Data::normal, 32);
  for (const auto& name : available_simd_targets()) {
    INFO(name);
    const SimdScope scope(name);
    const TilePlan<T> plan(extent, support);
    const TileRun<T> run(plan, space, layout);
    const auto held = run.held(old);
    const auto plain = run.inverse(spectrum);
    for (const T scale : {T(0.25), T(-3), T(0.1)}) {
      const auto scaled = run.inverse(spectrum, {.scale = scale});
      const auto added = run.inverse(spectrum, {.scale = scale, .add = true}, held);
      REQUIRE(plain.complaint + scaled.complaint + added.complaint == "");
      auto want_scaled = plain.out, want_added = held;
      for (std::size_t i = 0; i < held.size(); ++i) {
        want_scaled[i] = {scale * plain.out[i].real(), 0};
        want_added[i] = {held[i].real() + want_scaled[i].real(), 0};
      }
      REQUIRE(run.held(scaled.out) == run.held(want_scaled));
      // A product and a sum may be fused.
      for (std::size_t i = 0; i < held.size(); ++i) {
        const double size =
            std::abs(static_cast<double>(want_scaled[i].real())) + std::abs(static_cast<double>(held[i].real()));
        const double difference = std::abs(static_cast<double>(added.out[i].real() - want_added[i].real()));
        if (difference > epsilon<T> * size) FAIL("voxel " << i << " is off by " << difference);
      }
    }
  }
}

}  // namespace

TEST_CASE("tiles of every length along Z are accurate on every instruction set") {
  check_lengths<float>(0);
  check_lengths<double>(0);
}

TEST_CASE("tiles of every length along Y are accurate on every instruction set") {
  check_lengths<float>(1);
  check_lengths<double>(1);
}

TEST_CASE("tiles of every length along X are accurate on every instruction set") {
  check_lengths<float>(2);
  check_lengths<double>(2);
}

TEST_CASE("tiles of many shapes are accurate from and to both ends") {
  int turn = 0;
  for (const Extent3& e : tile_shapes()) {
    const Extent3 kernel{std::min<index_t>(e.z, 3), std::min<index_t>(e.y, 5), std::min<index_t>(e.x, 4)};
    const Extent3 valid{std::max<index_t>(1, e.z - 4), std::max<index_t>(1, e.y - 2), std::max<index_t>(1, e.x - 4)};
    for (const Extent3& support : {e, kernel, valid}) {
      const Data data = turn % 3 == 0 ? Data::small_integers : Data::normal;
      const auto one = spectrum_layouts<float>(e);
      const auto two = spectrum_layouts<double>(e);
      const auto layout = static_cast<std::size_t>(turn) % one.size();
      const auto seed = static_cast<std::uint64_t>(turn + 100);
      const int load = turn, store = turn + turn / 5 + 1;
      check<float>(e, support, space_of<float>(load, support, false), space_of<float>(store, support, true),
                   one[layout], data, seed);
      check<double>(e, support, space_of<double>(load, support, false), space_of<double>(store, support, true),
                    two[layout], data, seed);
      ++turn;
    }
  }
}

TEST_CASE("voxels outside a box are neither read nor written, wherever the box lies") {
  const Extent3 e{6, 5, 9};
  const TileBox boxes[] = {{{0, 0, 0}, {6, 5, 9}},      {{0, 0, 0}, {1, 1, 1}},    {{5, 4, 8}, {6, 5, 9}},
                           {{2, 1, 3}, {4, 4, 7}},      {{-3, -1, -8}, {2, 3, 1}}, {{0, 0, 4}, {6, 5, 50}},
                           {{2, 2, 2}, {2, 4, 4}},      {{2, 2, 2}, {4, 2, 4}},    {{2, 2, 2}, {4, 4, 2}},
                           {{6, 0, 0}, {9, 5, 9}},      {{0, -7, 0}, {6, 0, 9}},   {{0, 0, -9}, {6, 5, -1}},
                           {{20, 20, 9}, {30, 30, 12}}, {{4, 4, 4}, {2, 2, 2}}};
  for (const TileBox& box : boxes) {
    CAPTURE(to_string(box.begin), to_string(box.end));
    for (const Extent3& support : {e, Extent3{4, 3, 7}, Extent3{3, 5, 4}}) {
      const auto layouts = spectrum_layouts<float>(e);
      const auto layouts_double = spectrum_layouts<double>(e);
      const auto blocked = blocked_space<float>(support, box, 2);
      const auto plain = channel_space<float>(support, box, 11);
      check<float>(e, support, blocked, plain, layouts[3], Data::normal, 41);
      check<float>(e, support, plain, blocked, layouts[0], Data::normal, 42);
      const auto plain_double = channel_space<double>(support, box, 8);
      check<double>(e, support, plain_double, plain_double, layouts_double[1], Data::normal, 43);
    }
  }
}

TEST_CASE("tiles of one channel are clipped lane by lane at the borders of their volume") {
  for (const Extent3& e : {Extent3{5, 6, 7}, Extent3{4, 4, 17}, Extent3{3, 8, 2}, Extent3{1, 6, 6}}) {
    for (const Extent3& rest : {Extent3{0, 0, 0}, Extent3{1, 1, 1}, Extent3{2, 0, 3}, Extent3{9, 9, 99}}) {
      for (const Extent3& step : {e, Extent3{1, 2, 2}}) {
        const auto layout = spectrum_layouts<float>(e)[1];
        check<float>(e, e, tiles_space<float>(e, step, rest, false), tiles_space<float>(e, step, rest, true), layout,
                     Data::normal, 51);
        const auto layout_double = spectrum_layouts<double>(e)[0];
        check<double>(e, e, tiles_space<double>(e, step, rest, false), tiles_space<double>(e, step, rest, true),
                      layout_double, Data::normal, 52);
      }
    }
  }
}

TEST_CASE("lanes without data have a spectrum of zeros, whatever the others hold") {
  for (const Extent3& e : {Extent3{4, 6, 5}, Extent3{3, 3, 34}, Extent3{17, 2, 8}}) {
    const auto space = channel_space<float>(e, whole_box(e), 3);
    const auto layout = spectrum_layouts<float>(e)[0];
    for (const auto& name : available_simd_targets()) {
      CAPTURE(to_string(e), name);
      const SimdScope scope(name);
      const TilePlan<float> plan(e, e);
      const TileRun<float> run(plan, space, layout);
      const auto spectrum = run.forward(run.held(random_voxels<float>(e, Data::normal, 61)));
      REQUIRE(spectrum.complaint == "");
      const auto behind = static_cast<std::ptrdiff_t>(3 * plan.frequencies());
      REQUIRE(std::all_of(spectrum.out.begin() + behind, spectrum.out.end(), [](const auto& v) { return v == 0.0F; }));
    }
  }
}

TEST_CASE("a tile has the same bits in every layout and from both ends") {
  for (const Extent3& e : {Extent3{8, 8, 8}, Extent3{6, 10, 17}, Extent3{19, 4, 7}}) {
    const auto values = random_voxels<float>(e, Data::normal, 71);
    const auto half = make_sample<float>(problem_of<float>(e, e, fft::Kind::c2r), Data::normal, 72).in;
    for (const auto& name : available_simd_targets()) {
      CAPTURE(to_string(e), name);
      const SimdScope scope(name);
      const TilePlan<float> plan(e, e);
      std::vector<std::complex<float>> spectrum, voxels;
      for (const auto& layout : spectrum_layouts<float>(e)) {
        for (int kind = 0; kind < 2; ++kind) {
          CAPTURE(layout.name, kind);
          const auto space = space_of<float>(kind, e, true);
          const TileRun<float> run(plan, space, layout);
          const auto forward = run.forward(values).out, inverse = run.inverse(half).out;
          if (spectrum.empty()) {
            spectrum = forward;
            voxels = inverse;
          }
          REQUIRE(same_bits(forward, spectrum));
          REQUIRE(same_bits(inverse, voxels));
        }
      }
    }
  }
}

TEST_CASE("the inverse undoes a tile's transform and is its adjoint") {
  int kind = 0;
  for (const Extent3& e : tile_shapes()) {
    check_identities<float>(e, e, kind % 2);
    check_identities<double>(e, e, (kind + 1) % 2);
    const Extent3 support{(e.z + 1) / 2, (e.y + 2) / 3, std::max<index_t>(1, e.x - 3)};
    check_identities<float>(e, support, kind);
    check_identities<double>(e, support, kind + 1);
    ++kind;
  }
}

TEST_CASE("what a store scales and adds is the value that it would write by itself") {
  for (int kind = 0; kind < 5; ++kind) {
    check_store<float>({6, 5, 9}, {5, 5, 6}, kind);
    check_store<double>({6, 5, 9}, {5, 5, 6}, kind);
    check_store<float>({4, 3, 17}, {4, 3, 17}, kind);
    check_store<double>({17, 4, 2}, {12, 4, 2}, kind);
  }
}

TEST_CASE("tile plans say what they are, and refuse what they cannot do") {
  using Catch::Matchers::Contains;
  const TilePlan<float> plan({6, 34, 9}, {2, 3, 4});
  CHECK(plan.extent() == Extent3{6, 34, 9});
  CHECK(plan.support() == Extent3{2, 3, 4});
  CHECK(plan.x_star() == 5);
  CHECK(plan.blocks() == 34 * 5);
  CHECK(plan.frequencies() == 6 * 34 * 5);
  CHECK(plan.flops() == Approx(2.5 * 16 * 6 * 34 * 9 * std::log2(6.0 * 34 * 9)));
  CHECK_THAT(plan.describe(), Contains("6 x 34 x 9") && Contains("2 x 3 x 4") && Contains(simd_target()));
  CHECK(plan.scratch_bytes() % 64 == 0);

  for (int axis = 0; axis < 3; ++axis) {
    for (const index_t wrong : {index_t{0}, index_t{-3}, index_t{65}, std::numeric_limits<index_t>::max()}) {
      Extent3 extent{8, 8, 8};
      extent[axis] = wrong;
      CAPTURE(to_string(extent));
      CHECK_THROWS_AS(TilePlan<float>(extent, {1, 1, 1}), InvalidArgument);
      CHECK_THROWS_WITH(TilePlan<double>(extent, {1, 1, 1}), Contains("extent") && Contains(to_string(extent)));
    }
    for (const index_t wrong : {index_t{0}, index_t{-1}, index_t{9}}) {
      Extent3 support{8, 8, 8};
      support[axis] = wrong;
      CAPTURE(to_string(support));
      CHECK_THROWS_AS(TilePlan<double>({8, 8, 8}, support), InvalidArgument);
      CHECK_THROWS_WITH(TilePlan<float>({8, 8, 8}, support), Contains("support") && Contains(to_string(support)));
    }
  }
}
