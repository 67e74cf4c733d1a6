// Tests the engine toom_cook with kernels of 1 x 3 x 3 and 3 x 1 x 1 voxels, whose other axes are not transformed, as
// toom_cook_test.cpp does it for 3 x 3 x 3.
#include <algorithm>
#include <cmath>
#include <limits>

#include "testing/engine_checks.hpp"
#include "testing/random_problem.hpp"
#include "testing/sanitizers.hpp"
#include "testing/selected_row.hpp"

#include "convolume/cpu.hpp"
#include "plan/toom_cook_cost.hpp"

using namespace convolume;
using test::ConvCase;

namespace {

const ConvOptions by_planar_windows{.engine = Engine::toom_cook};

/// Problems whose windows, channels and padding do not come out even. The extents begin at one voxel.
const std::vector<const char*> assorted_planar{
    "ic16id1ih3iw3oc16kd1kh3kw3",
    "ic16id3oc16kd3kh1kw1",
    "ic16id1oc16kd1kh3kw3pd0ph1pw1",
    "ic16id1oc16kd3kh1kw1pd1ph0pw0",
    "mb2ic20id3ih6iw7oc33kd1kh3kw3pd0ph1pw1",
    "mb2ic20id6ih3iw7oc33kd3kh1kw1pd1ph0pw0",
    "ic17id5ih9iw5oc16od5oh7ow5kd1kh3kw3pd0ph0pw1",
    "ic17id9ih1iw5oc16od7oh1ow5kd3kh1kw1pd0",
    "ic40id7ih5iw37oc70kd1kh3kw3pd0ph1pw1",
    "ic40id7ih5iw37oc70kd3kh1kw1pd1ph0pw0",
    // Padding along axes that are not transformed.
    "ic16id2ih5iw6oc16od4oh5ow6kd1kh3kw3pd1ph1pw1",
    "ic16id5ih2iw3oc16od5oh6ow5kd3kh1kw1pd1ph2pw1",
};

}  // namespace

TEST_CASE("toom_cook computes planar kernels to 2e-6, in double to 1e-14, with uneven windows, channels and padding") {
  const std::string before = simd_target();
  for (const auto& target : available_simd_targets()) {
    if (test::sanitized && target != before) continue;
    set_simd_target(target);
    for (const char* text : assorted_planar) {
      CAPTURE(target, text);
      test::check_against_reference<float>(parse_problem(text), by_planar_windows, 2e-6);
      test::check_against_reference<double>(parse_problem(text), by_planar_windows, 1e-14);
    }
  }
  set_simd_target(before);
}

TEST_CASE("toom_cook computes planar kernels to 1e-6 if it sums hundreds of channels, or several parts of windows") {
  for (const char* text : {"ic300id1ih4iw5oc17kd1kh3kw3pd0ph1pw1", "ic300id4ih1iw5oc17kd3kh1kw1pd1ph0pw0",
                           "mb70ic16id2ih5iw6oc17kd1kh3kw3pd0ph1pw1", "mb37ic56id5ih3iw9oc70kd3kh1kw1pd1ph0pw0"}) {
    CAPTURE(text);
    test::check_against_reference<float>(parse_problem(text), by_planar_windows, 1e-6);
  }
}

TEST_CASE("toom_cook computes planar kernels transposed, in groups, and with padding that leaves out voxels") {
  for (const char* text : {"mb2ic20id2ih5iw9oc36kd1kh3kw3pd0ph1pw1", "mb2ic20id6ih2iw9oc36kd3kh1kw1pd1ph0pw0"}) {
    CAPTURE(text);
    ConvProblem transposed = parse_problem(text);
    transposed.transposed = true;
    for (const auto kind : {Activation::Kind::none, Activation::Kind::leaky_relu}) {
      transposed.epilogue = {.bias = true, .activation = {kind}};
      test::check_against_reference<float>(transposed, by_planar_windows, 2e-6);
      test::check_against_reference<double>(transposed, by_planar_windows, 1e-14);
    }
  }
  for (const char* text : {"g2ic40id3ih6iw5oc64kd1kh3kw3pd0ph1pw1", "g2ic40id6ih3iw5oc64kd3kh1kw1pd1ph0pw0"}) {
    test::check_against_reference<float>(parse_problem(text), by_planar_windows, 2e-6);
  }
  for (const char* text : {"ic16id9oc16kd1kh3kw3", "ic16id9oc16kd3kh1kw1"}) {
    ConvProblem cropped = parse_problem(text);
    cropped.pad_before = {-1, 0, -3};
    cropped.pad_after = {-2, 1, 2};
    test::check_against_reference<double>(cropped, by_planar_windows, 1e-14);
  }
}

TEST_CASE("toom_cook with planar kernels: forward and backward are adjoint") {
  for (const char* text : assorted_planar) {
    CAPTURE(text);
    test::check_adjoint(parse_problem(text), by_planar_windows);
  }
}

TEST_CASE("toom_cook computes planar kernels with the same bits on 1, 2 and 8 threads, and if weights are not kept") {
  ConvOptions recomputed = by_planar_windows;
  recomputed.memory_budget = 1;
  test::check_threads({"mb2ic20id5ih13iw9oc20kd1kh3kw3pd0ph1pw1", "mb2ic20id13ih5iw9oc20kd3kh1kw1pd1ph0pw0",
                       "ic70id1ih6iw5oc66kd1kh3kw3pd0ph1pw1", "ic70id6ih1iw5oc66kd3kh1kw1pd1ph0pw0",
                       "g2ic32id3ih9iw7oc64kd1kh3kw3", "g2ic32id9ih3iw7oc64kd3kh1kw1"},
                      by_planar_windows, recomputed);
}

TEST_CASE("toom_cook computes planar kernels with the same bits whatever the caches of the machine are") {
  for (const char* text : {"mb2ic70id6ih22iw27oc40kd1kh3kw3pd0ph1pw1", "mb2ic70id22ih6iw27oc40kd3kh1kw1pd1ph0pw0"}) {
    const ConvProblem p = parse_problem(text);
    ConvCase<float> first(p, by_planar_windows);
    first.run();
    for (const char* row : {"zen3", "zen4", "emerald_rapids", "zen2"}) {
      CAPTURE(text, row);
      const test::SelectedRow selected(row);
      ConvCase<float> other(p, by_planar_windows);
      other.run();
      test::check_same_bits(first, other);
    }
  }
}

TEST_CASE(
    "toom_cook computes planar kernels with the same bits in blocked memory, and zero in lanes without a channel") {
  for (const char* text : {"mb2ic20id3ih8iw7oc18kd1kh3kw3pd0ph1pw1", "mb2ic20id8ih3iw7oc18kd3kh1kw1pd1ph0pw0",
                           "g2ic32id2ih6iw19oc64kd1kh3kw3pd0ph1pw1", "g2ic32id6ih2iw19oc64kd3kh1kw1pd1ph0pw0"}) {
    for (const auto kind : {Activation::Kind::none, Activation::Kind::relu, Activation::Kind::sigmoid}) {
      test::check_layouts<float>(text, by_planar_windows, true, true, kind);
      test::check_layouts<float>(text, by_planar_windows, false, true, kind);
      test::check_layouts<float>(text, by_planar_windows, true, false, kind);
      test::check_layouts<double>(text, by_planar_windows, true, true, kind);
    }
  }
}

TEST_CASE("toom_cook with planar kernels waits for what it reads, says which planes are complete, and adds") {
  for (const char* text :
       {"mb2ic16id9ih6iw6oc16kd1kh3kw3pd0ph1pw1", "ic16id11ih6iw6oc16od15oh6ow6kd3kh1kw1pd3ph0pw0"}) {
    CAPTURE(text);
    test::check_ready(parse_problem(text), by_planar_windows);
  }
  test::check_add("mb2ic18id5ih7iw9oc20kd1kh3kw3pd0ph1pw1", by_planar_windows);
  test::check_add("mb2ic18id7ih5iw9oc20kd3kh1kw1pd1ph0pw0", by_planar_windows);
}

TEST_CASE("toom_cook spreads NaN in x to the planar windows that read it, and to nothing else") {
  for (const char* text : {"ic16id9ih14iw15oc20kd1kh3kw3pd0ph1pw1", "ic16id14ih9iw15oc20kd3kh1kw1pd1ph0pw0"}) {
    const ConvProblem p = parse_problem(text);
    const bool planar = p.kernel.z == 1;
    ConvCase<float> clean(p, by_planar_windows), spoiled(p, by_planar_windows);
    spoiled.x.view()(0, 3, 6, 7, 8) = std::numeric_limits<float>::quiet_NaN();
    clean.run();
    spoiled.run();
    // Window i reads voxels 4i - 1 to 4i + 4: plane 6 is read by window 1, row 7 by windows 1 and 2, column 8 by both.
    for (index_t c = 0; c < 20; ++c) {
      for (index_t z = 0; z < p.input.z; ++z) {
        for (index_t y = 0; y < p.input.y; ++y) {
          for (index_t x = 0; x < p.input.x; ++x) {
            const bool read = planar ? z == 6 && (y / 4 == 1 || y / 4 == 2) && (x / 4 == 1 || x / 4 == 2)
                                     : z / 4 == 1 && y == 7 && x == 8;
            const index_t reach_z = planar ? 0 : 1, reach_yx = planar ? 1 : 0;
            const bool multiplied =
                std::abs(z - 6) <= reach_z && std::abs(y - 7) <= reach_yx && std::abs(x - 8) <= reach_yx;
            const float value = spoiled.y.view()(0, c, z, y, x);
            if (multiplied) REQUIRE(std::isnan(value));
            if (!read) REQUIRE(value == clean.y.view()(0, c, z, y, x));
          }
        }
      }
    }
    CHECK(test::same_bits(spoiled.dx, clean.dx));
  }
}

TEST_CASE("a choice of toom_cook names the results of a window along each axis, and has to fit the kernel") {
  const ConvProblem planar = parse_problem("ic16id9oc16kd1kh3kw3"), lines = parse_problem("ic16id9oc16kd3kh1kw1"),
                    cubes = parse_problem("ic16id9oc16kd3");
  for (const auto& [problem, choice] : {std::pair{&planar, "toom_cook 1x4x4"}, std::pair{&lines, "toom_cook 4x1x1"},
                                        std::pair{&cubes, "toom_cook 4x4x4"}}) {
    CHECK(ConvPlan::make(*problem, {.choice = choice}).choice() == choice);
    CHECK(ConvPlan::make(*problem, by_planar_windows).choice() == choice);
    CHECK_THAT(ConvPlan::make(*problem, by_planar_windows).numerics(), Catch::Contains(choice));
  }
  CHECK_THROWS_WITH(ConvPlan::make(planar, {.choice = "toom_cook 4x4x4"}),
                    Catch::Contains("windows of 4x4x4 results do not fit kernel 1 x 3 x 3; use 1x4x4"));
  CHECK_THROWS_WITH(ConvPlan::make(lines, {.choice = "toom_cook 1x4x4"}),
                    Catch::Contains("windows of 1x4x4 results do not fit kernel 3 x 1 x 1; use 4x1x1"));
  CHECK_THROWS_WITH(ConvPlan::make(cubes, {.choice = "toom_cook 4x1x1"}),
                    Catch::Contains("windows of 4x1x1 results do not fit kernel 3 x 3 x 3; use 4x4x4"));
  CHECK_THROWS_WITH(ConvPlan::make(planar, {.choice = "toom_cook 1x6x6"}),
                    Catch::Contains("windows have 4x4x4, 1x4x4 or 4x1x1 results, not '1x6x6'"));
}

TEST_CASE("chunks of planar windows hold up to 16 windows, whatever the extents are") {
  using plan::window_sums;
  CHECK(window_sums(parse_problem("ic16id24ih32iw32oc16kd1kh3kw3pd0ph1pw1")).chunk == Extent3{4, 1, 4});
  CHECK(window_sums(parse_problem("ic16id1ih32iw32oc16kd1kh3kw3pd0ph1pw1")).chunk == Extent3{1, 4, 4});
  CHECK(window_sums(parse_problem("ic16id24ih32iw32oc16kd3kh1kw1pd1ph0pw0")).chunk == Extent3{1, 1, 16});
  CHECK(window_sums(parse_problem("ic16id24ih20iw20oc16kd3kh1kw1pd1ph0pw0")).chunk == Extent3{2, 1, 7});
}
