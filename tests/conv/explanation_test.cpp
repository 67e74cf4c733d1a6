// Tests what plans say about themselves before they run: which layouts an engine serves, and why an engine was chosen.
#include <algorithm>

#include "testing/selected_row.hpp"
#include <catch2/catch.hpp>

#include "convolume/conv.hpp"
#include "convolume/cpu.hpp"

using namespace convolume;

namespace {

/// Dense, deep, grouped, depthwise, planar, strided and dilated problems, and a kernel of one voxel.
const char* const assorted[] = {"ic32id24oc32kd5",      "ic64id6oc64kd3pd1",    "g2ic32id9oc8kd3",  "g18ic18oc18id9kd3",
                                "ic3id20oc20kh5kw5ph2", "ic8id13oc12kd3sd2pd1", "ic4id20oc4kd3dd4", "ic16id8oc16kd1"};

const LayoutEstimate* estimate_for(const std::vector<LayoutEstimate>& served, Layout x, Layout y) {
  const auto found = std::find_if(served.begin(), served.end(),
                                  [&](const LayoutEstimate& one) { return one.x_layout == x && one.y_layout == y; });
  return found == served.end() ? nullptr : &*found;
}

/// Checks each pair of layouts against the plan for it.
void check_layouts(const ConvProblem& problem, const ConvOptions& options) {
  const std::vector<LayoutEstimate> served = ConvPlan::best_layouts(problem, options);
  std::size_t plans = 0;
  for (const Layout x : {Layout::plain, Layout::blocked}) {
    for (const Layout y : {Layout::plain, Layout::blocked}) {
      CAPTURE(to_string(problem), name_of(options.engine), name_of(x), name_of(y));
      ConvProblem one = problem;
      one.x_layout = x;
      one.y_layout = y;
      const LayoutEstimate* estimate = estimate_for(served, x, y);
      if (estimate == nullptr) {
        CHECK_THROWS_AS(ConvPlan::make(one, options), Unsupported);
        continue;
      }
      const ConvPlan plan = ConvPlan::make(one, options);
      CHECK(plan.engine() == estimate->engine);
      CHECK(plan.seconds() == estimate->seconds);
      ++plans;
    }
  }
  CHECK(served.size() == plans);
  CHECK(std::is_sorted(served.begin(), served.end(),
                       [](const LayoutEstimate& a, const LayoutEstimate& b) { return a.seconds < b.seconds; }));
}

}  // namespace

TEST_CASE("best_layouts lists every pair of layouts that has a plan, the fastest first") {
  const test::SelectedRow row("zen4");
  for (const char* text : assorted) {
    for (const bool gradients : {false, true}) {
      check_layouts(parse_problem(text), {.want_dx = gradients, .want_dw = gradients});
    }
    for (const Engine engine : {Engine::fft_tiled, Engine::fft_volume, Engine::direct, Engine::reference}) {
      check_layouts(parse_problem(text), {.engine = engine});
    }
  }
  ConvProblem problem = parse_problem("ic9oc8id9kd3sd2pd1");
  problem.transposed = true;
  problem.type = DataType::f64;
  check_layouts(problem, {});
}

TEST_CASE("best_layouts leaves out what no engine serves") {
  ConvProblem problem = parse_problem("g2ic32id9oc8kd3");  // groups of 16 to 4 channels
  problem.x_layout = problem.y_layout = Layout::blocked;   // its own layouts are ignored
  const auto grouped = ConvPlan::best_layouts(problem);
  CHECK(grouped.size() == 2);
  CHECK(estimate_for(grouped, Layout::plain, Layout::plain) != nullptr);
  CHECK(estimate_for(grouped, Layout::blocked, Layout::plain) != nullptr);
  CHECK(ConvPlan::best_layouts(problem, {.engine = Engine::fft_volume}).size() == 1);
  problem.type = DataType::f64;
  CHECK(ConvPlan::best_layouts(problem, {.engine = Engine::onednn}).empty());  // with or without oneDNN
  problem.stride.y = 0;
  CHECK_THROWS_AS(ConvPlan::best_layouts(problem), InvalidArgument);
  CHECK_THROWS_AS(ConvPlan::best_layouts(parse_problem(assorted[0]), {.engine = Engine::direct, .choice = "reference"}),
                  InvalidArgument);
}

TEST_CASE("an explanation says of each engine its estimate or why there is none") {
  for (const char* text : assorted) {
    CAPTURE(text);
    const ConvPlan plan = ConvPlan::make(parse_problem(text), {.want_dx = false});
    const Explanation& e = plan.explanation();
    CHECK(e.problem == plan.problem());
    CHECK((!e.want_dx && e.want_dw));
    CHECK(e.engine == plan.engine());
    CHECK(e.choice == plan.choice());
    CHECK(e.seconds == plan.seconds());
    CHECK(e.caches.size() == plan.caches().size());
    CHECK(std::count_if(e.candidates.begin(), e.candidates.end(), [&](const Explanation::Candidate& one) {
            return one.engine == e.engine && one.seconds == e.seconds;
          }) == 1);
    for (const Explanation::Candidate& one : e.candidates) {
      CAPTURE(one.name);
      // With other SIMD targets toom_cook is chosen by name only.
      CHECK((one.requested || (one.engine == Engine::toom_cook && std::string(simd_target()) != "AVX2")));
      if (!one.requested) CHECK_THAT(one.reason, Catch::Contains("name the engine to use it"));
      CHECK(one.seconds.has_value() == one.reason.empty());
      CHECK((!one.seconds || *one.seconds > 0));
      CHECK_THAT(plan.explain(), Catch::Contains("  " + one.name + ": ") && Catch::Contains(one.reason));
    }
    CHECK(e.candidates.back().engine == Engine::reference);
    CHECK(to_string(e) == plan.explain());
  }
}

TEST_CASE("an explanation names the engines that were not requested, and the one that was preferred") {
  const Explanation forced = ConvPlan::make(parse_problem(assorted[0]), {.engine = Engine::fft_volume}).explanation();
  for (const Explanation::Candidate& one : forced.candidates) {
    CAPTURE(one.name);
    CHECK(one.requested == (one.engine == Engine::fft_volume));
    CHECK(one.seconds.has_value() == one.requested);
    CHECK(one.reason == (one.requested ? "" : "not requested"));
  }
  Explanation edited = forced;
  edited.candidates[0] = {.engine = Engine::direct, .name = "direct", .seconds = 0.25, .preferred = true};
  edited.choice.clear();
  edited.caches.clear();
  CHECK_THAT(to_string(edited),
             Catch::Contains("  direct: 250 ms estimated for y, dx, dw") &&
                 Catch::Contains("direct is preferred to estimates that are less than 13 % shorter") &&
                 !Catch::Contains("chosen"));
}

TEST_CASE("an explanation of direct has what bounds each wanted direction, and the floor") {
  const test::SelectedRow row("zen5");
  const ConvPlan plan =
      ConvPlan::make(parse_problem("ic32id12oc32kd3pd1"), {.engine = Engine::direct, .want_dx = false});
  const std::vector<Explanation::Bound>& bounds = plan.explanation().bounds;
  REQUIRE(bounds.size() == 2);
  CHECK(bounds[0].result == "y");
  CHECK(bounds[1].result == "dw");
  CHECK(bounds[0].seconds + bounds[1].seconds == Approx(plan.seconds()));
  for (const Explanation::Bound& bound : bounds) {
    CHECK_FALSE(bound.part.empty());
    CHECK((bound.part_seconds > 0 && bound.part_seconds <= bound.seconds));
    CHECK((bound.floor_seconds > 0 && bound.floor_seconds < bound.seconds));
    CHECK_THAT(plan.explain(), Catch::Contains("    " + bound.result + ": ") && Catch::Contains(bound.part));
  }
  CHECK(ConvPlan::make(parse_problem("ic32id12oc32kd3"), {.engine = Engine::fft_tiled}).explanation().bounds.empty());
}
