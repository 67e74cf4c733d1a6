// Tests strides, batches, supports, in-place and unaligned memory. Every layout must give the result of the dense one,
// read only its points and write only its points.
#include "testing/sanitizers.hpp"
#include <catch2/catch.hpp>

#include "tests/fft/fft_harness.hpp"

using namespace convolume;
using namespace convolume::test;

namespace {

constexpr fft::Order orders[] = {fft::Order::natural, fft::Order::rotated};

template <class T>
void check_layout(fft::Problem problem) {
  problem.type = data_type_of<T>();
  const auto sample = make_sample<T>(problem, Data::normal, static_cast<std::uint64_t>(problem.batch));
  for (const Way& way : all_ways()) {
    INFO(way.name() << ": " << to_text(problem));
    const SimdScope scope(way.target);
    const auto plan = fft::Plan::make(problem, {.backend = way.backend});
    const auto outcome = run(plan, sample.in);
    REQUIRE(outcome.complaint == "");
    ErrorSum error;
    error.add(outcome.out, sample);
    REQUIRE(error.relative() / epsilon<T> <= slack(plan) * accuracy(problem.extent));
  }
}

void check_both(const fft::Problem& problem) {
  check_layout<float>(problem);
  check_layout<double>(problem);
}

const std::vector<Extent3> shapes{{4, 5, 6}, {3, 17, 9}, {9, 2, 19}, {1, 1, 40}, {1, 12, 1}, {33, 1, 2}, {8, 16, 16}};

/// Returns strides for axes nested in the given sequence, innermost first, with a gap behind each.
Extent3 nested(const Extent3& n, const std::array<int, 3>& sequence, index_t first, index_t gap) {
  Extent3 stride;
  index_t next = first;
  for (const int axis : sequence) {
    stride[axis] = next;
    next = next * n[axis] + gap;
  }
  return stride;
}

index_t span(const Extent3& n, const Extent3& s) { return 1 + s.z * (n.z - 1) + s.y * (n.y - 1) + s.x * (n.x - 1); }

}  // namespace

TEST_CASE("the space side may have any strides, also between neighbours of a row") {
  for (const auto& e : shapes) {
    for (const auto kind : all_kinds) {
      for (const auto order : orders) {
        fft::Problem problem{.kind = kind, .extent = e, .order = order};
        problem.space_stride = {0, e.x + 3, 0};
        check_layout<float>(problem);
        problem.space_stride = {0, 0, 3};
        check_both(problem);
        problem.space_stride = nested(e, {2, 1, 0}, 2, 5);
        check_layout<double>(problem);
        problem.space_stride = nested(e, {0, 1, 2}, 1, 0);
        check_layout<float>(problem);
        problem.space_stride = nested(e, {1, 2, 0}, 2, 1);
        check_layout<double>(problem);
      }
    }
  }
}

TEST_CASE("the spectrum side may have any strides in both orders, and its gaps are left alone") {
  for (const auto& e : shapes) {
    for (const auto kind : all_kinds) {
      for (const auto order : orders) {
        fft::Problem problem{.kind = kind, .extent = e, .order = order};
        const Extent3 s = spectrum_extent(problem);
        problem.spectrum_stride = nested(s, {2, 1, 0}, 1, 3);  // rows and planes padded
        check_both(problem);
        problem.spectrum_stride = nested(s, {2, 1, 0}, 2, 0);
        check_layout<float>(problem);
        problem.spectrum_stride = nested(s, {0, 2, 1}, 1, 1);  // rotated, without unnecessary gaps
        check_layout<float>(problem);
        problem.spectrum_stride = nested(s, {0, 2, 1}, 3, 2);
        check_layout<double>(problem);
        problem.spectrum_stride = nested(s, {1, 0, 2}, 1, 4);
        check_layout<float>(problem);
      }
    }
  }
}

TEST_CASE("both sides may be strided at once") {
  for (const auto kind : all_kinds) {
    fft::Problem problem{.kind = kind, .extent = {6, 7, 10}};
    for (const auto order : orders) {
      problem.order = order;
      problem.space_stride = nested(problem.extent, {1, 0, 2}, 2, 3);
      problem.spectrum_stride = nested(spectrum_extent(problem), {2, 0, 1}, 3, 1);
      check_both(problem);
    }
  }
}

TEST_CASE("batches lie densely, apart, or interleaved") {
  for (const auto& e : shapes) {
    for (const auto kind : all_kinds) {
      for (const auto order : orders) {
        fft::Problem problem{.kind = kind, .extent = e, .order = order, .batch = 3};
        check_both(problem);
        const auto dense = fft::Plan::make(problem);
        problem.space_distance = e.volume() + 5;
        problem.spectrum_distance = dense.spectrum_elements() + 3;
        check_both(problem);

        problem.batch = 5;
        const Extent3 s = spectrum_extent(problem);
        problem.space_distance = problem.spectrum_distance = 1;
        problem.space_stride = nested(e, {2, 1, 0}, 5, 0);
        problem.spectrum_stride =
            nested(s, order == fft::Order::natural ? std::array{2, 1, 0} : std::array{0, 2, 1}, 5, 0);
        check_both(problem);
        // Rows of different volumes alternate: the batch lies between X and Y.
        problem.space_stride = {5 * e.x * e.y, 5 * e.x, 1};
        problem.space_distance = e.x;
        problem.spectrum_stride = {5 * s.x * s.y, 5 * s.x, 1};
        problem.spectrum_distance = s.x;
        check_layout<float>(problem);
      }
    }
  }
}

TEST_CASE("points outside the support are neither read nor written") {
  for (const auto& e : shapes) {
    for (const auto kind : all_kinds) {
      for (const auto order : orders) {
        fft::Problem problem{.kind = kind, .extent = e, .order = order};
        const auto part = [](index_t n, index_t of) { return std::max<index_t>(1, n * of / 4); };
        problem.support = {part(e.z, 2), 0, 0};
        check_both(problem);
        problem.support = {0, part(e.y, 3), 0};
        check_layout<float>(problem);
        problem.support = {0, 0, part(e.x, 1)};
        check_layout<double>(problem);
        problem.support = {part(e.z, 3), part(e.y, 2), part(e.x, 3)};
        check_both(problem);
        problem.support = {1, 1, 1};
        check_layout<float>(problem);
        problem.support = e;
        check_layout<float>(problem);
      }
    }
  }
}

TEST_CASE("a support goes with strides and batches") {
  for (const auto& e : shapes) {
    for (const auto kind : all_kinds) {
      for (const auto order : orders) {
        fft::Problem problem{.kind = kind, .extent = e, .order = order, .batch = 3};
        problem.support = {(e.z + 1) / 2, (e.y + 2) / 3, (e.x + 1) / 2};
        problem.space_stride = nested(e, {2, 1, 0}, 2, 1);
        problem.space_distance = span(e, problem.space_stride) + 2;
        check_both(problem);
      }
    }
  }
}

TEST_CASE("strides of a single point and distances of a single volume may be anything") {
  const index_t far = index_t{1} << 62;
  for (const auto kind : all_kinds) {
    for (const Extent3& e : {Extent3{1, 6, 10}, Extent3{6, 1, 10}, Extent3{6, 10, 1}, Extent3{1, 1, 12}}) {
      fft::Problem problem{.kind = kind, .extent = e};
      const Extent3 s = spectrum_extent(problem);
      problem.space_stride = nested(e, {2, 1, 0}, 1, 0);
      problem.spectrum_stride = nested(s, {2, 1, 0}, 1, 0);
      const auto forget = [&](int axis) {
        if (e[axis] == 1) problem.space_stride[axis] = far;
        if (s[axis] == 1) problem.spectrum_stride[axis] = far;
      };
      for (int axis = 0; axis < 3; ++axis) forget(axis);
      problem.space_distance = problem.spectrum_distance = far;
      check_both(problem);
      problem.spectrum_stride = {0, 0, 0};
      problem.spectrum_distance = 0;
      problem.in_place = true;
      if (!is_real(problem)) check_both(problem);
    }
  }
}

TEST_CASE("small real volumes are transformed along Z first in both orders, planes and volumes apart as well") {
  for (const auto& [kind, order] :
       {std::pair{fft::Kind::r2c, fft::Order::rotated}, std::pair{fft::Kind::c2r, fft::Order::rotated},
        std::pair{fft::Kind::r2c, fft::Order::natural}, std::pair{fft::Kind::c2r, fft::Order::natural}}) {
    // Half-complex lines that fill vectors exactly (16, 32), partly, or plus one pair (18); odd lengths; a prime along
    // Y.
    for (const Extent3& e : {Extent3::all(8), Extent3{16, 9, 5}, Extent3{32, 2, 13}, Extent3{18, 17, 6},
                             Extent3{9, 16, 7}, Extent3{44, 3, 30}, Extent3{13, 31, 2},
                             // The last radix of the backward transform is odd, so frequency n/2 is not at the end of
                             // its pass.
                             Extent3{56, 4, 8}, Extent3{176, 2, 9}}) {
      fft::Problem problem{.kind = kind, .extent = e, .order = order};
      const auto dense = fft::Plan::make(problem);
      const bool has_pairs = simd_target() != "SCALAR" && simd_target() != "EMU128";
      CHECK(has_pairs == (dense.describe().find("half-complex") != std::string::npos));
      const auto planes_first = fft::Plan::make(problem, {.z_first = false});
      CHECK((planes_first.describe() == dense.describe()) == (!has_pairs || order == fft::Order::rotated));
      check_both(problem);
      problem.space_stride = {e.y * e.x + 3, e.x, 1};
      problem.batch = 3;
      problem.space_distance = problem.space_stride.z * e.z + 5;
      problem.spectrum_distance = dense.spectrum_elements() + 64;
      problem.unaligned = true;
      check_both(problem);
    }
  }
}

TEST_CASE("transforms work in place") {
  for (const auto& e : shapes) {
    for (const auto kind : all_kinds) {
      fft::Problem problem{.kind = kind, .extent = e, .in_place = true};
      check_both(problem);
      problem.batch = 3;
      check_both(problem);
      problem.support = {(e.z + 1) / 2, (e.y + 2) / 3, (e.x + 1) / 2};
      check_both(problem);
      problem.support = {0, 0, 0};
      const index_t row = 2 * (e.x / 2 + 1) + 6;
      problem.space_stride = {row * e.y + 4, row, 0};
      problem.space_distance = problem.space_stride.z * e.z + 10;
      check_both(problem);
      problem.unaligned = true;
      check_layout<float>(problem);
      if (is_real(problem)) continue;
      problem.space_stride = nested(e, {1, 2, 0}, 3, 1);
      problem.space_distance = 1;
      check_both(problem);
    }
  }
}

TEST_CASE("in place, an odd length may lie in planes before rows") {
  for (const auto kind : all_kinds) {
    // The rows of all planes with the same y are contiguous.
    fft::Problem problem{.kind = kind, .extent = {4, 5, 7}, .in_place = true};
    problem.space_stride = {8, 32, 0};
    check_both(problem);
  }
}

TEST_CASE("pointers need no more than the alignment of an element where the problem says so") {
  for (const auto& e : shapes) {
    for (const auto kind : all_kinds) {
      for (const auto order : orders) {
        fft::Problem problem{.kind = kind, .extent = e, .order = order, .unaligned = true};
        check_both(problem);
        problem.batch = 2;
        problem.space_distance = e.volume() + 1;
        check_both(problem);
        problem.support = {(e.z + 1) / 2, 0, (e.x + 1) / 2};
        check_both(problem);
      }
    }
  }
}

TEST_CASE("a layout changes nothing but small roundings: strided, dense and in place agree with one another") {
  const fft::Problem dense{.kind = fft::Kind::r2c, .extent = {12, 10, 14}};
  const auto sample = make_sample<float>(dense, Data::normal, 8);
  const auto expected = run(fft::Plan::make(dense), sample.in).out;
  fft::Problem strided = dense, in_place = dense, rotated = dense;
  strided.space_stride = nested(dense.extent, {0, 2, 1}, 2, 3);
  in_place.in_place = true;
  rotated.order = fft::Order::rotated;
  for (const auto& problem : {strided, in_place, rotated}) {
    INFO(to_text(problem));
    ErrorSum error;
    error.add(run(fft::Plan::make(problem), sample.in).out, expected);
    CHECK(error.relative() / epsilon<float> <= 2 * accuracy(dense.extent));
  }
}

namespace {

/// Returns the r2c spectrum of normal noise in the layout of `problem`, as (z, y, x) without gaps.
std::vector<float> spectrum_of(fft::Problem problem) {
  const auto plan = fft::Plan::make(problem);
  const Buffer<float> in(plan.space_bytes()), out(plan.spectrum_bytes()), scratch(plan.scratch_bytes());
  const index_t count = problem.batch * problem.extent.volume();
  for (index_t i = 0; i < count; ++i)
    in.data()[i] = static_cast<float>(normal({.seed = 9}, static_cast<std::uint64_t>(i)));
  plan.execute(in.data(), out.data(), scratch.data());
  const Extent3 stride = plan.spectrum_stride();
  const index_t distance = problem.spectrum_distance != 0 ? problem.spectrum_distance : plan.spectrum_elements();
  std::vector<float> dense;
  for (index_t b = 0; b < problem.batch; ++b) {
    for (index_t z = 0; z < problem.extent.z; ++z) {
      for (index_t y = 0; y < problem.extent.y; ++y) {
        for (index_t x = 0; x <= problem.extent.x / 2; ++x) {
          const float* value = out.data() + 2 * (b * distance + z * stride.z + y * stride.y + x * stride.x);
          dense.insert(dense.end(), {value[0], value[1]});
        }
      }
    }
  }
  return dense;
}

}  // namespace

TEST_CASE("spectra too large for the caches have the same bits in every layout") {
  if (sanitized) return;  // it needs addresses beyond the L2 cache, which is slow here
  const Extent3 e = Extent3::all(128);
  const auto expected = spectrum_of({.extent = e, .order = fft::Order::rotated});
  const index_t row = 65 * 128;
  const auto same = [&](const fft::Problem& problem) { return spectrum_of(problem) == expected; };
  CHECK(same({.extent = e}));
  CHECK(same({.extent = e, .order = fft::Order::rotated, .unaligned = true}));
  for (const index_t gap : {1, 8}) {
    CAPTURE(gap);
    CHECK(same({.extent = e, .order = fft::Order::rotated, .spectrum_stride = {0, row + gap, 0}}));
  }
  CHECK(same({.extent = e, .spectrum_stride = {1, row + 64, 128}}));
  fft::Problem batch{.extent = {127, 128, 128}, .order = fft::Order::rotated, .batch = 2};
  const auto dense = spectrum_of(batch);
  batch.spectrum_distance = row * 128 + 1;
  CHECK(spectrum_of(batch) == dense);
}

TEST_CASE("volumes of a batch do not disturb each other") {
  for (const Extent3& e : {Extent3{1, 1, 127}, Extent3{1, 9, 34}, Extent3{3, 4, 17}, Extent3{1, 1, 60}}) {
    for (const fft::Kind kind : {fft::Kind::r2c, fft::Kind::c2r, fft::Kind::c2c_forward}) {
      CAPTURE(to_string(e), static_cast<int>(kind));
      const auto plan = fft::Plan::make({.kind = kind, .extent = e, .batch = 40});
      const bool forward = kind != fft::Kind::c2r;
      const std::size_t in_bytes = forward ? plan.space_bytes() : plan.spectrum_bytes();
      const std::size_t out_bytes = forward ? plan.spectrum_bytes() : plan.space_bytes();
      const Buffer<float> in(in_bytes), alone(out_bytes), beside(out_bytes), scratch(plan.scratch_bytes());
      const std::size_t one_in = in_bytes / 4 / 40, one_out = out_bytes / 4 / 40;
      for (std::size_t i = 0; i < in_bytes / 4; ++i)
        in.data()[i] = i < one_in ? static_cast<float>(i % 7) - 3.0f : 0.0f;
      plan.execute(in.data(), alone.data(), scratch.data());
      for (std::size_t i = one_in; i < in_bytes / 4; ++i) in.data()[i] = std::numeric_limits<float>::infinity();
      plan.execute(in.data(), beside.data(), scratch.data());
      CHECK(std::equal(alone.data(), alone.data() + one_out, beside.data()));
    }
  }
}
