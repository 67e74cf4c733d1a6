// Tests explicit choices: the text of everything that decides how a problem is convolved, and its parsing.
#include "testing/conv_case.hpp"
#include <catch2/catch.hpp>

#include "conv/candidates.hpp"
#include "conv/direct/direct_nest.hpp"
#include "conv/direct/nest_choice.hpp"
#include "conv/implementations.hpp"
#include "conv/spectra/tiled_choice.hpp"
#include "convolume/machine.hpp"
#include "convolume/reuse.hpp"

using namespace convolume;
using conv::Choice;
using conv::NestParts;
using conv::TiledParts;
using plan::TileChoice;
using test::ConvCase;

namespace {

/// Dense, depthwise, grouped, planar, and with strides and dilations, which need polyphase components.
const char* const problems[] = {"mb2ic3id8oc5kd3",
                                "ic17id9ih11iw13oc20kd3kh2kw4",
                                "g18ic18oc18id9kd3pd1",
                                "ic9oc8id14kd5pd2",
                                "ic16oc16id8kd1",
                                "ic8ih20iw18oc8kh5ph2",
                                "g3ic24oc6id9kd3pd1",
                                "ic9oc10id13kd3sd2pd1",
                                "ic8oc9id12ih9iw9kd3dd1pd2",
                                "g6ic6oc6id11kd3sd2pd1"};

std::vector<ConvProblem> all_problems() {
  std::vector<ConvProblem> all;
  for (const char* text : problems) all.push_back(parse_problem(text));
  all.push_back(parse_problem("ic9oc8id9kd3sd2pd1"));
  all.back().transposed = true;
  std::swap(all.back().in_channels, all.back().out_channels);
  return all;
}

/// A choice with tiles of 8 in groups of different sizes.
const char* const shared_text = "fft_tiled fwd=8x8x8*3 bwd_d=8x8x8*5 bwd_w=8x8x8*1 shared";

}  // namespace

TEST_CASE("a choice is read as it was written") {
  const plan::TileChoices tiles{TileChoice{{18, 11, 15}, 4}, TileChoice{{16, 1, 7}, 24}, TileChoice{{2, 3, 5}, 1}};
  const Choice tiled{Engine::fft_tiled, std::make_shared<TiledParts>(tiles)};
  CHECK(to_string(tiled) == "fft_tiled fwd=18x11x15*4 bwd_d=16x1x7*24 bwd_w=2x3x5*1");
  CHECK(conv::parse_choice(to_string(tiled)) == tiled);
  const Choice shared{Engine::fft_tiled, std::make_shared<TiledParts>(tiles, true)};
  CHECK_FALSE(shared == tiled);
  CHECK_FALSE(shared.has_separate_parts());
  CHECK(to_string(shared) == to_string(tiled) + " shared");
  CHECK(conv::parse_choice(to_string(shared)) == shared);
  const Choice nests{Engine::direct, std::make_shared<NestParts>(conv::Nests{
                                         plan::parse_nest("n* y* c x | kx c16 x14 k"), plan::parse_nest("| x"),
                                         plan::parse_nest("z+* k* y | x c16 k32")})};
  CHECK(to_string(nests) == "direct fwd=n*.y*.c.x.|.kx.c16.x14.k bwd_d=|.x bwd_w=z+*.k*.y.|.x.c16.k32");
  CHECK(conv::parse_choice(to_string(nests)) == nests);
  for (const Engine engine : {Engine::fft_tiled, Engine::fft_volume, Engine::direct, Engine::reference}) {
    CHECK(conv::parse_choice(name_of(engine)) == Choice{.engine = engine});
  }
}

TEST_CASE("a choice that makes no sense is refused with the word that is wrong") {
  using Catch::Contains;
  const auto refuses = [](const std::string& text, const std::string& why) {
    CHECK_THROWS_WITH(conv::parse_choice(text), Contains(why));
    CHECK_THROWS_AS(ConvPlan::make(parse_problem("ic2id8oc2kd3"), {.choice = text}), InvalidArgument);
  };
  refuses("fastest", "'fastest' is unknown");
  refuses("automatic", "not one");
  refuses(" ", "empty");
  refuses("direct fwd=4x4x4*1 bwd_d=4x4x4*1 bwd_w=4x4x4*1", "nest '4x4x4*1': '4x4x4*1' at position 0");
  refuses("direct fwd=|.x bwd_d=|.x", "three directions");
  refuses("direct fwd=|.x bwd_w=|.x bwd_d=|.x", "'bwd_w=|.x' does not say the nest of bwd_d");
  refuses("fft_volume fwd=|.x bwd_d=|.x bwd_w=|.x", "fft_volume has no tiles");
  refuses("fft_tiled fwd=4x4x4*1", "three directions");
  refuses("fft_tiled fwd=4x4x4*1 bwd_d=4x4x4*1 shared", "three directions");
  refuses("fft_tiled shared fwd=4x4x4*1 bwd_d=4x4x4*1 bwd_w=4x4x4*1", "three directions");
  refuses("direct shared", "three directions");
  refuses("fft_tiled fwd=4x4x4*1 bwd_w=4x4x4*1 bwd_d=4x4x4*1", "'bwd_w=4x4x4*1'");
  for (const char* tiles : {"fwd=4x4x4", "fwd=4x4*1", "fwd=4x4x4*0", "fwd=4x4x4*1x", "fwd=-4x4x4*1", "fwd=4x4x4*1.5"}) {
    refuses(std::string("fft_tiled ") + tiles + " bwd_d=4x4x4*1 bwd_w=4x4x4*1", tiles);
  }
}

TEST_CASE("tiles that cannot serve the kernel are refused") {
  const auto make = [](const char* tile) {
    return ConvPlan::make(parse_problem("ic2ih8oc2kh3"),
                          {.choice = std::string("fft_tiled fwd=") + tile + " bwd_d=1x4x4*1 bwd_w=4x1x4*1"});
  };
  CHECK_NOTHROW(make("1x3x4*1"));
  for (const char* tile : {"1x2x4*1", "2x4x4*1", "1x4x65*1", "1x4x4*25"}) CHECK_THROWS_AS(make(tile), InvalidArgument);
}

TEST_CASE("shared tiles are refused where directions cannot share them") {
  const auto make = [](const char* problem, const std::string& choice) {
    return ConvPlan::make(parse_problem(problem), {.choice = choice});
  };
  CHECK_NOTHROW(make("ic9oc8id14kd3", shared_text));
  for (const char* problem : {"ic2oc8id14kd3",     // small channel counts: tiles are in the lanes
                              "g9ic9oc9id14kd3",   // depthwise: no sums over channels
                              "ic9oc8id14kd3sd2",  // the phases of x begin at different places
                              "ic9oc8id14kd6",     // more than two tiles would overlap in a voxel
                              "ic9oc8ih14kh3"}) {  // the weight gradient swaps Z and Y
    CAPTURE(problem);
    CHECK_THROWS_AS(make(problem, shared_text), InvalidArgument);
  }
  CHECK_THROWS_AS(make("ic9oc8id14kd3", "fft_tiled fwd=8x8x8*3 bwd_d=8x8x9*5 bwd_w=8x8x8*1 shared"), InvalidArgument);
  auto transposed = parse_problem("ic8oc9id14kd3");
  transposed.transposed = true;
  CHECK_THROWS_AS(ConvPlan::make(transposed, {.choice = shared_text}), InvalidArgument);
}

TEST_CASE("an engine that contradicts the choice is refused") {
  const auto p = parse_problem("ic2id8oc2kd3");
  CHECK_THROWS_AS(ConvPlan::make(p, {.engine = Engine::direct, .choice = "reference"}), InvalidArgument);
  CHECK(ConvPlan::make(p, {.engine = Engine::reference, .choice = "reference"}).engine() == Engine::reference);
  CHECK_THROWS_AS(ConvPlan::make(parse_problem("ic4id8oc4kd1"), {.choice = "fft_tiled"}), Unsupported);
}

namespace {

void check_same(ConvCase<float>& first, ConvCase<float>& again) {
  CHECK(again.plan.choice() == first.plan.choice());
  CHECK(again.plan.numerics() == first.plan.numerics());
  CHECK(again.plan.engine() == first.plan.engine());
  CHECK(again.plan.seconds() == first.plan.seconds());
  CHECK_THAT(first.plan.numerics(), Catch::StartsWith(first.plan.choice()));
  CHECK_THAT(first.plan.explain(), Catch::Contains("chosen: " + first.plan.choice()));
  first.run();
  again.run();
  CHECK(test::same_bits(first.y, again.y));
  CHECK(test::same_bits(first.dx, again.dx));
  CHECK(test::same_bits(first.dw, again.dw));
  CHECK(test::same_bits(first.dbias, again.dbias));
}

}  // namespace

TEST_CASE("a plan from a choice has the bits and the text of the plan that gave it") {
  for (const ConvProblem& p : all_problems()) {
    for (const Engine engine : {Engine::automatic, Engine::fft_tiled, Engine::fft_volume}) {
      CAPTURE(to_string(p), p.transposed, name_of(engine));
      if (engine == Engine::fft_tiled && p.kernel == Extent3{1, 1, 1}) continue;
      if (engine == Engine::fft_volume && p.transposed) continue;
      ConvCase<float> first(p, {.engine = engine});
      ConvCase<float> again(p, {.choice = first.plan.choice()}, false, 2);
      check_same(first, again);
    }
  }
}

TEST_CASE("a plan from a choice of shared tiles has the bits of the plan that gave it") {
  ConvCase<float> chosen(parse_problem("ic9oc8id14kd3"), {.choice = shared_text});
  CHECK(chosen.plan.choice() == shared_text);
  ConvCase<float> again(parse_problem("ic9oc8id14kd3"), {.choice = chosen.plan.choice()}, false, 2);
  check_same(chosen, again);
  // The cost model's own choices: large problems share tiles.
  for (const char* text : {"ic32oc32id20kd5", "g2ic64oc64id20kd5"}) {
    CAPTURE(text);
    const auto p = parse_problem(text);
    const ConvPlan plan = ConvPlan::make(p, {.engine = Engine::fft_tiled});
    CHECK_THAT(plan.choice(), Catch::EndsWith(" shared"));
    if (test::too_slow_here(p)) continue;
    ConvCase<float> first(p, {.engine = Engine::fft_tiled}), second(p, {.choice = plan.choice()}, false, 2);
    check_same(first, second);
  }
}

TEST_CASE("automatic sums dilated kernels directly where rows between taps need no copies, or few") {
  const auto engine_of = [](const char* text) {
    ConvProblem p = parse_problem(text);
    p.x_layout = p.y_layout = Layout::blocked;
    return std::string(name_of(ConvPlan::make(p, {}).engine()));
  };
  CHECK(engine_of("ic16id40oc16od17kd3sd2dd2") == "direct");
  CHECK(engine_of("ic64id12oc64kd3dd3pd4") == "direct");
  // Regions of single rows would copy a hundred rows each.
  CHECK_THAT(engine_of("ic8id24ih64iw128oc16kd3dd4pd5"), Catch::StartsWith("fft_tiled"));
}

TEST_CASE("candidates are different choices, the cost model's first, and all of them are right") {
  for (const ConvProblem& p : all_problems()) {
    const auto choices = conv::candidates(p, {}, 4);
    CHECK(to_string(choices[0]) == ConvPlan::make(p).choice());
    ConvCase<double> reference(p, {.engine = Engine::reference});
    if (test::too_slow_here(p)) continue;
    reference.run();
    for (std::size_t i = 0; i < choices.size(); ++i) {
      CAPTURE(to_string(p), p.transposed, to_string(choices[i]));
      CHECK(std::count(choices.begin(), choices.end(), choices[i]) == 1);
      CHECK(conv::parse_choice(to_string(choices[i])) == choices[i]);
      ConvCase<float> c(p, {.choice = to_string(choices[i])});
      CHECK(c.plan.choice() == to_string(choices[i]));
      c.run();
      CHECK(test::relative_error(c.y, reference.y) < 2e-6);
      CHECK(test::relative_error(c.dx, reference.dx) < 2e-6);
      CHECK(test::relative_error(c.dw, reference.dw) < 2e-6);
    }
  }
}

TEST_CASE("candidates have separate tiles and, if directions can share them, shared ones") {
  const auto counted = [](const char* text) {
    const auto choices = conv::candidates(parse_problem(text), {.engine = Engine::fft_tiled}, 4);
    const auto separate =
        std::count_if(choices.begin(), choices.end(), [](const Choice& c) { return c.has_separate_parts(); });
    const auto shared =
        std::count_if(choices.begin(), choices.end(), [](const Choice& c) { return c.as<TiledParts>()->shared(); });
    CHECK(separate + shared == static_cast<std::ptrdiff_t>(choices.size()));
    return std::pair(separate, shared);
  };
  CHECK(counted("ic16oc16id24kd3") == std::pair<std::ptrdiff_t, std::ptrdiff_t>(4, 2));
  CHECK(counted("g2ic32oc32id24kd3") == std::pair<std::ptrdiff_t, std::ptrdiff_t>(4, 2));
  CHECK(counted("ic2oc16id24kd3").second == 0);
  CHECK(counted("g16ic16oc16id24kd3").second == 0);
}

TEST_CASE("candidates of direct are different nests, at most so many") {
  ConvProblem problem = parse_problem("ic64oc64id24kd3pd1");
  problem.x_layout = problem.y_layout = Layout::blocked;
  const auto choices = conv::candidates(problem, {.engine = Engine::direct}, 5);
  CHECK(choices.size() > 1);
  CHECK(choices.size() <= 5);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    CHECK(choices[i].as<NestParts>() != nullptr);
    CHECK(std::count(choices.begin(), choices.end(), choices[i]) == 1);
  }
}

TEST_CASE(
    "of five candidates of direct, three have the least estimated seconds and two the least reuse cost of the rest") {
  ConvProblem problem = parse_problem("ic64oc64id24kd3pd1");
  problem.x_layout = problem.y_layout = Layout::blocked;
  const plan::Direction forward = plan::Direction::forward;
  const auto ranked = conv::rank_nests(problem, forward, machine_model());
  REQUIRE(ranked.size() > 5);
  const auto spaces = plan::spaces(problem, forward);
  const auto cost = [&](const plan::LoopNest& nest) {
    return plan::reuse_cost(nest, spaces, 4, plan::reuse_levels(machine_model()));
  };
  std::vector<double> rest;
  for (std::size_t i = 3; i < ranked.size(); ++i) rest.push_back(cost(ranked[i].nest));
  std::sort(rest.begin(), rest.end());
  const auto parts = conv::propose_nests(problem, {}, 5);
  REQUIRE(parts.size() == 5);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const plan::LoopNest& nest = dynamic_cast<const NestParts&>(*parts[i]).nests().front();
    CAPTURE(i, plan::to_string(nest));
    if (i < 3) CHECK(nest == ranked[i].nest);
    if (i >= 3) CHECK(cost(nest) == rest[i - 3]);
  }
}

TEST_CASE("tuning is announced to take 2 s, or longer for a large problem") {
  CHECK(ConvPlan::tuning_seconds(parse_problem("ic16id10oc17kd3pd1"), {}) == 2);
  ConvProblem large = parse_problem("mb8ic128oc128id64kd3pd1");
  const ConvOptions direct{.engine = Engine::direct};
  CHECK(ConvPlan::tuning_seconds(large, direct) > 3 * 2 * ConvPlan::make(large, direct).seconds());
}

TEST_CASE("tuning returns a choice that serves the problem and keeps to the requested engine") {
  for (const Layout layout : {Layout::plain, Layout::blocked}) {
    auto p = parse_problem("ic16id10oc17kd3pd1");
    p.x_layout = p.y_layout = layout;
    p.epilogue = {.bias = true, .activation = {.kind = Activation::Kind::relu}};
    SlabResource memory;
    Scheduler scheduler(2);
    const Execution run{scheduler, &memory};
    const std::string any = ConvPlan::tune(p, {}, run), tiled = ConvPlan::tune(p, {.engine = Engine::fft_tiled}, run);
    CHECK(ConvPlan::make(p, {.choice = any}).choice() == any);
    CHECK(ConvPlan::make(p, {.choice = tiled}).engine() == Engine::fft_tiled);
    const std::string nests = ConvPlan::tune(p, {.engine = Engine::direct}, run);
    CHECK(ConvPlan::make(p, {.choice = nests}).choice() == nests);
    CHECK(conv::parse_choice(nests).as<NestParts>() != nullptr);
    const std::string direct = ConvPlan::make(p, {.engine = Engine::direct}).choice();
    CHECK(ConvPlan::tune(p, {.choice = direct}, run) == direct);
    CHECK(memory.statistics().live_bytes == 0);
  }
}
