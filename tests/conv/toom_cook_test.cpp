// Tests the engine toom_cook against the reference in double: any padding and extent, channels that fill blocks partly,
// both layouts, and what the engine promises besides the numbers.
#include <algorithm>
#include <cmath>
#include <limits>

#include "testing/engine_checks.hpp"
#include "testing/random_problem.hpp"
#include "testing/sanitizers.hpp"
#include "testing/selected_row.hpp"

#include "convolume/cpu.hpp"

using namespace convolume;
using test::ConvCase;

namespace {

const ConvOptions by_windows{.engine = Engine::toom_cook};

/// Problems whose windows, channels and padding do not come out even. The extents begin at one voxel.
const std::vector<const char*> assorted{
    "ic16id3oc16kd3",
    "ic16id1oc16od1kd3pd1",
    "ic16id1ih2iw3oc17od1oh2ow3kd3pd1",
    "mb2ic20id5ih6iw7oc33kd3pd1",
    "ic17id4ih5iw9oc16od4oh3ow9kd3pd1ph0pw1",
    "ic16id3ih3iw3oc16od9oh9ow9kd3pd4",
    "ic40id6ih17iw5oc70kd3pd1",
    "mb3ic16id7ih9iw22oc24od5oh10ow22kd3pd0ph1pw1",
    "ic16id18ih6iw18oc16kd3pd1",
};

}  // namespace

TEST_CASE("toom_cook is accurate to 2e-6 and in double to 1e-14, with uneven windows, channels and padding") {
  const std::string before = simd_target();
  for (const auto& target : available_simd_targets()) {
    if (test::sanitized && target != before) continue;
    set_simd_target(target);
    for (const char* text : assorted) {
      CAPTURE(target, text);
      test::check_against_reference<float>(parse_problem(text), by_windows, 2e-6);
      test::check_against_reference<double>(parse_problem(text), by_windows, 1e-14);
    }
  }
  set_simd_target(before);
}

TEST_CASE("toom_cook is accurate to 2e-6 if it sums hundreds of channels, or several parts of windows") {
  for (const char* text : {"ic128id6oc16kd3pd1", "ic300id4oc17kd3pd1", "ic700id4oc16kd3pd1", "mb70ic16id4oc17kd3pd1",
                           "mb37ic56id3oc70kd3pd1"}) {
    CAPTURE(text);
    test::check_against_reference<float>(parse_problem(text), by_windows, 2e-6);
  }
}

TEST_CASE("toom_cook computes transposed problems, groups, and volumes from which padding leaves out voxels") {
  ConvProblem transposed = parse_problem("mb2ic20id6ih5iw9oc36kd3pd1");
  transposed.transposed = true;
  for (const auto kind : {Activation::Kind::none, Activation::Kind::leaky_relu}) {
    transposed.epilogue = {.bias = true, .activation = {kind}};
    test::check_against_reference<float>(transposed, by_windows, 2e-6);
    test::check_against_reference<double>(transposed, by_windows, 1e-14);
  }
  test::check_against_reference<float>(parse_problem("g2ic40id6oc64kd3pd1"), by_windows, 2e-6);
  ConvProblem cropped = parse_problem("ic16id9oc16kd3");
  cropped.pad_before = {-1, 0, -3};
  cropped.pad_after = {-2, 1, 2};
  test::check_against_reference<double>(cropped, by_windows, 1e-14);
}

TEST_CASE("toom_cook rounds to the right integers") {
  for (const char* text : {"mb2ic20id9oc33kd3pd1", "ic150id6oc16kd3pd1"}) {
    if (test::too_slow_here(parse_problem(text))) continue;
    ConvCase<float> ours(parse_problem(text), by_windows, true);
    ConvCase<float> reference(ours.problem, {.engine = Engine::reference}, true);
    ours.run();
    reference.run();
    CAPTURE(text);
    for (auto [a, b] :
         {std::pair{&ours.y, &reference.y}, std::pair{&ours.dx, &reference.dx}, std::pair{&ours.dw, &reference.dw}}) {
      for (index_t i = 0; i < a->elements(); ++i) REQUIRE(std::round(a->data()[i]) == b->data()[i]);
    }
  }
}

TEST_CASE("toom_cook: forward and backward are adjoint: <Ax, dy> = <x, A'dy> = <w, dA/dw>") {
  for (const char* text : assorted) {
    CAPTURE(text);
    test::check_adjoint(parse_problem(text), by_windows);
  }
}

TEST_CASE("toom_cook has the same bits on 1, 2 and 8 threads, and if weights are not kept") {
  ConvOptions recomputed = by_windows;
  recomputed.memory_budget = 1;
  test::check_threads({"mb2ic20id13oc20kd3pd1", "ic70id6oc66kd3pd1", "g2ic32id9oc64kd3pd1", "mb3ic16id22oc16kd3"},
                      by_windows, recomputed);
}

TEST_CASE("toom_cook has the same bits whatever the caches of the machine are") {
  const ConvProblem p = parse_problem("mb2ic70id13ih22iw27oc40kd3pd1");
  ConvCase<float> first(p, by_windows);
  first.run();
  for (const char* row : {"zen3", "zen4", "emerald_rapids", "zen2"}) {
    CAPTURE(row);
    const test::SelectedRow selected(row);
    ConvCase<float> other(p, by_windows);
    other.run();
    test::check_same_bits(first, other);
  }
}

TEST_CASE("toom_cook gives the same bits in blocked memory, and zero in lanes without a channel") {
  for (const char* text :
       {"mb2ic20id8oc18kd3pd1", "ic16id10ih12iw11oc32kd3", "ic33id3ih7iw9oc19od3oh7ow9kd3pd1", "g2ic32id6oc64kd3pd1"}) {
    for (const auto kind : {Activation::Kind::none, Activation::Kind::relu, Activation::Kind::sigmoid}) {
      test::check_layouts<float>(text, by_windows, true, true, kind);
      test::check_layouts<float>(text, by_windows, false, true, kind);
      test::check_layouts<float>(text, by_windows, true, false, kind);
      test::check_layouts<double>(text, by_windows, true, true, kind);
    }
  }
}

TEST_CASE("toom_cook waits for what it reads, and says which planes are complete") {
  for (const char* text : {"mb2ic16id19ih6iw6oc16kd3pd1", "ic16id11ih6iw6oc16od15oh6ow6kd3pd3ph1pw1"}) {
    test::check_ready(parse_problem(text), by_windows);
  }
}

TEST_CASE("toom_cook adds to dx, dw and dbias if the caller requests it") {
  test::check_add("ic18id7oc20kd3pd1", by_windows);
  test::check_add("mb2ic16id31oc16kd3pd1", by_windows);
}

TEST_CASE("toom_cook gives a window the same bits wherever a volume begins, if windows begin at the same voxels") {
  const ConvProblem whole = parse_problem("ic16id20ih6iw22oc16kd3pd1");
  ConvCase<float> a(whole, by_windows);
  a.run();
  // Results from plane 8 on read voxels from plane 7 on.
  ConvProblem part = parse_problem("ic16id13ih6iw22oc16od12oh6ow22kd3pd0ph1pw1");
  ConvCase<float> b(part, by_windows);
  for (index_t c = 0; c < 16; ++c) {
    std::copy_n(&a.x.view()(0, c, 7, 0, 0), 13 * 6 * 22, &b.x.view()(0, c, 0, 0, 0));
  }
  std::copy_n(a.w.data(), a.w.elements(), b.w.data());
  std::copy_n(a.bias.data(), a.bias.elements(), b.bias.data());
  b.run();
  for (index_t c = 0; c < 16; ++c) {
    CHECK(std::equal(&a.y.view()(0, c, 8, 0, 0), &a.y.view()(0, c, 8, 0, 0) + 12 * 6 * 22, &b.y.view()(0, c, 0, 0, 0)));
  }
}

TEST_CASE("toom_cook spreads NaN in x to the windows that read it, and to nothing else") {
  const ConvProblem p = parse_problem("ic16id14oc20kd3pd1");
  ConvCase<float> clean(p, by_windows), spoiled(p, by_windows);
  for (auto [to, from] : {std::pair{&spoiled.x, &clean.x}, std::pair{&spoiled.w, &clean.w},
                          std::pair{&spoiled.bias, &clean.bias}, std::pair{&spoiled.dy, &clean.dy}}) {
    std::copy_n(from->data(), from->elements(), to->data());
  }
  spoiled.x.view()(0, 3, 6, 7, 8) = std::numeric_limits<float>::quiet_NaN();
  clean.run();
  spoiled.run();
  // Window i reads voxels 4i - 1 to 4i + 4: plane 6 is read by window 1, row 7 by windows 1 and 2, column 8 by both.
  // Results that multiply the voxel are NaN. The other results of these windows may be.
  for (index_t c = 0; c < 20; ++c) {
    for (index_t z = 0; z < 14; ++z) {
      for (index_t y = 0; y < 14; ++y) {
        for (index_t x = 0; x < 14; ++x) {
          const bool multiplied = std::abs(z - 6) <= 1 && std::abs(y - 7) <= 1 && std::abs(x - 8) <= 1;
          const bool read = z / 4 == 1 && (y / 4 == 1 || y / 4 == 2) && (x / 4 == 1 || x / 4 == 2);
          const float value = spoiled.y.view()(0, c, z, y, x);
          if (multiplied) REQUIRE(std::isnan(value));
          if (!read) REQUIRE(value == clean.y.view()(0, c, z, y, x));
        }
      }
    }
  }
  CHECK(test::same_bits(spoiled.dx, clean.dx));
  for (index_t o = 0; o < 20; ++o) {
    for (index_t c = 0; c < 16; ++c) {
      for (index_t tap = 0; tap < 27; ++tap) {
        const float value = spoiled.dw.view()(o, c, tap / 9, tap / 3 % 3, tap % 3);
        REQUIRE((c == 3 ? std::isnan(value) : value == clean.dw.view()(o, c, tap / 9, tap / 3 % 3, tap % 3)));
      }
    }
  }
}

TEST_CASE("low_error leaves toom_cook out, and refuses it by name and by choice") {
  ConvProblem p = parse_problem("ic32id32oc32kd3pd1");
  p.x_layout = p.y_layout = Layout::blocked;
  const ConvPlan low = ConvPlan::make(p, {.low_error = true});
  CHECK(low.engine() != Engine::toom_cook);
  CHECK_THAT(low.explain(), Catch::Contains("toom_cook: has a larger error, which low_error excludes"));
  CHECK_THROWS_WITH(ConvPlan::make(p, {.engine = Engine::toom_cook, .low_error = true}),
                    Catch::Contains("engine 'toom_cook' has a larger error") && Catch::Contains("--low-error"));
  CHECK_THROWS_WITH(ConvPlan::make(p, {.choice = "toom_cook 4x4x4", .low_error = true}),
                    Catch::Contains("choice 'toom_cook 4x4x4'"));
  for (const LayoutEstimate& one : ConvPlan::best_layouts(p, {.low_error = true})) {
    CHECK(one.engine != Engine::toom_cook);
  }
  CHECK_THAT(ConvPlan::make(p, by_windows).explain(), Catch::Contains("error is about 1.3e-6"));
  CHECK(has_larger_error(Engine::toom_cook));
  CHECK_FALSE(has_larger_error(Engine::fft_tiled));
}

TEST_CASE("automatic chooses toom_cook only where it was measured to be faster") {
  const std::string before = simd_target();
  ConvProblem p = parse_problem("ic32id64oc32kd3pd1");
  p.x_layout = p.y_layout = Layout::blocked;
  for (const auto& target : available_simd_targets()) {
    set_simd_target(target);
    CAPTURE(target);
    const test::SelectedRow row("zen3");
    const ConvPlan plan = ConvPlan::make(p);
    CHECK((plan.engine() == Engine::toom_cook) == (target == "AVX2"));
    const std::string reason =
        target == "AVX3" ? "slower than others on too many layers" : "not measured with " + target;
    if (target != "AVX2") CHECK_THAT(plan.explain(), Catch::Contains("toom_cook: " + reason));
  }
  set_simd_target(before);
}

TEST_CASE("toom_cook says which problem it does not serve") {
  const auto refuses = [](const char* text, const char* reason) {
    CAPTURE(text);
    CHECK_THROWS_WITH(ConvPlan::make(parse_problem(text), by_windows), Catch::Contains(reason));
  };
  refuses("ic16id8oc16kd2", "serves kernels of 3 x 3 x 3, 1 x 3 x 3 and 3 x 1 x 1 voxels, not 2 x 2 x 2");
  refuses("ic16id8oc16kd3kh3kw1ph0pw0", "not 3 x 3 x 1");
  refuses("ic16id8oc16kd1", "not 1 x 1 x 1");
  refuses("ic16id9oc16kd3sd2", "serves stride 1, not 2 x 2 x 2");
  refuses("ic16id9oc16kd3dd1", "serves dilation 1, not 2 x 2 x 2");
  refuses("ic15id9oc16kd3", "at least 16 input channels, there are 15");
  refuses("ic16id9oc3kd3", "at least 16 output channels, there are 3");
  refuses("g16ic16id9oc16kd3", "depthwise");
  ConvProblem blocked = parse_problem("g2ic48id9oc64kd3");
  blocked.x_layout = blocked.y_layout = Layout::blocked;
  CHECK_THROWS_WITH(ConvPlan::make(blocked, by_windows), Catch::Contains("groups of 24 channels"));
  const ConvProblem p = parse_problem("ic16id9oc16kd3");
  CHECK_THROWS_WITH(ConvPlan::make(p, {.choice = "toom_cook 6x6x6"}), Catch::Contains("'6x6x6'"));
  CHECK_THROWS_WITH(ConvPlan::make(p, {.choice = "toom_cook 4x4x4 4x4x4"}), Catch::Contains("nothing else"));
  CHECK(ConvPlan::make(p, {.choice = "toom_cook 4x4x4"}).choice() == "toom_cook 4x4x4");
  CHECK(ConvPlan::make(p, {.choice = "toom_cook"}).choice() == "toom_cook 4x4x4");
}
