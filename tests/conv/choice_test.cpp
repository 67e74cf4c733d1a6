// Explicit choices: what decides how a problem is convolved, written down and read back.
#include "conv/choice.hpp"
#include "conv/engine.hpp"

#include "conv_fixture.hpp"
#include <catch2/catch.hpp>

using namespace convolume;
using conv::Choice;
using conv::TileChoice;
using test::ConvCase;

namespace {

const char* const problems[] = {"mb2ic3id8oc5kd3",      "ic17id9ih11iw13oc20kd3kh2kw4",
                                "g18ic18oc18id9kd3pd1", "ic9oc8id14kd5pd2",
                                "ic16oc16id8kd1",       "ic8ih20iw18oc8kh5ph2"};

}  // namespace

TEST_CASE("a choice is read as it was written") {
  const Choice tiled{.engine = Engine::fft_tiled,
                     .tiles = {{TileChoice{{18, 11, 15}, 4}, TileChoice{{16, 1, 7}, 24}, TileChoice{{2, 3, 5}, 1}}}};
  CHECK(to_string(tiled) == "fft_tiled fwd=18x11x15*4 bwd_d=16x1x7*24 bwd_w=2x3x5*1");
  CHECK(conv::parse_choice(to_string(tiled)) == tiled);
  for (const Engine engine : conv::automatic_engines) {
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
  refuses("direct fwd=4x4x4*1 bwd_d=4x4x4*1 bwd_w=4x4x4*1", "direct has no tiles");
  refuses("fft_tiled fwd=4x4x4*1", "three directions");
  refuses("fft_tiled fwd=4x4x4*1 bwd_w=4x4x4*1 bwd_d=4x4x4*1", "'bwd_w=4x4x4*1'");
  for (const char* tiles : {"fwd=4x4x4", "fwd=4x4*1", "fwd=4x4x4*0", "fwd=4x4x4*1x", "fwd=-4x4x4*1", "fwd=4x4x4*1.5"}) {
    refuses(std::string("fft_tiled ") + tiles + " bwd_d=4x4x4*1 bwd_w=4x4x4*1", tiles);
  }
}

TEST_CASE("tiles that cannot serve the kernel are refused") {
  const auto make = [](const char* tile) {
    return ConvPlan::make(parse_problem("ic2ih8oc2kh3"),
                          {.choice = std::string("fft_tiled fwd=") + tile + " bwd_d=1x4x4*1 bwd_w=1x4x4*1"});
  };
  CHECK_NOTHROW(make("1x3x4*1"));
  for (const char* tile : {"1x2x4*1", "2x4x4*1", "1x4x65*1", "1x4x4*25"}) CHECK_THROWS_AS(make(tile), InvalidArgument);
}

TEST_CASE("an engine that contradicts the choice is refused") {
  const auto p = parse_problem("ic2id8oc2kd3");
  CHECK_THROWS_AS(ConvPlan::make(p, {.engine = Engine::direct, .choice = "reference"}), InvalidArgument);
  CHECK(ConvPlan::make(p, {.engine = Engine::reference, .choice = "reference"}).engine() == Engine::reference);
  CHECK_THROWS_AS(ConvPlan::make(parse_problem("g2ic4id8oc4kd3"), {.choice = "direct"}), Unsupported);
}

TEST_CASE("a plan from a choice has the bits and the text of the plan that gave it") {
  for (const char* text : problems) {
    for (const Engine engine : {Engine::automatic, Engine::fft_tiled, Engine::fft_volume}) {
      CAPTURE(text, name_of(engine));
      const auto p = parse_problem(text);
      if (engine == Engine::fft_tiled && p.kernel == Extent3{1, 1, 1}) continue;
      ConvCase<float> first(p, {.engine = engine});
      ConvCase<float> again(p, {.choice = first.plan.choice()}, false, 2);
      CHECK(again.plan.choice() == first.plan.choice());
      CHECK(again.plan.numerics() == first.plan.numerics());
      CHECK(again.plan.engine() == first.plan.engine());
      CHECK_THAT(first.plan.numerics(), Catch::StartsWith(first.plan.choice()));
      CHECK_THAT(first.plan.explain(), Catch::Contains("chosen: " + first.plan.choice()));
      first.run();
      again.run();
      CHECK(test::same_bits(first.y, again.y));
      CHECK(test::same_bits(first.dx, again.dx));
      CHECK(test::same_bits(first.dw, again.dw));
      CHECK(test::same_bits(first.dbias, again.dbias));
    }
  }
}

TEST_CASE("candidates are different choices, the cost model's first, and all of them are right") {
  for (const char* text : problems) {
    const auto p = parse_problem(text);
    const auto choices = conv::candidates(p, {}, 4);
    CHECK(to_string(choices[0]) == ConvPlan::make(p).choice());
    ConvCase<double> reference(p, {.engine = Engine::reference});
    if (test::too_slow_here(p)) continue;
    reference.run();
    for (std::size_t i = 0; i < choices.size(); ++i) {
      CAPTURE(text, to_string(choices[i]));
      CHECK(std::count(choices.begin(), choices.end(), choices[i]) == 1);
      ConvCase<float> c(p, {.choice = to_string(choices[i])});
      CHECK(c.plan.choice() == to_string(choices[i]));
      c.run();
      CHECK(test::relative_error(c.y, reference.y) < 2e-6);
      CHECK(test::relative_error(c.dx, reference.dx) < 2e-6);
      CHECK(test::relative_error(c.dw, reference.dw) < 2e-6);
    }
  }
}

TEST_CASE("tuning returns a choice that serves the problem and keeps to the engine that was asked for") {
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
    CHECK(ConvPlan::tune(p, {.choice = "direct"}, run) == "direct");
    CHECK(memory.statistics().live_bytes == 0);
  }
}
