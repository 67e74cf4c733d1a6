// Variants of nests: how many there are, that they are valid, how they are ranked, and how they are measured.
#include "convolume/variants.hpp"

#include <algorithm>
#include <set>

#include <catch2/catch.hpp>

#include "convolume/blocking.hpp"
#include "convolume/error.hpp"
#include "convolume/reuse.hpp"

using namespace convolume;
using namespace convolume::plan;

namespace {

constexpr const char* planar = "mb2ic64ih28oc64oh28kh3ph1";
constexpr const char* one_by_one = "mb2ic64ih28oc64oh28kh1";
constexpr const char* volume = "mb1ic64id14oc64kd3pd1";

std::vector<LoopNest> nests(const char* problem, VariantOptions options = {},
                            Direction direction = Direction::forward) {
  return variant_nests(parse_problem(problem), direction, options);
}

VariantList list(const char* problem, VariantOptions options, const AcceptVariant& accept) {
  return variants(parse_problem(problem), Direction::forward, options, machine_model(), accept);
}

std::string accept_all(const LoopNest&) { return ""; }

/// Measurements from a table: variant i takes i + 2 seconds, except what `change` says.
struct FakeTimer {
  const std::vector<Variant>& variants;
  std::vector<std::size_t> measured{};  ///< in order
  std::size_t automatic = 0;
  std::function<double(std::size_t index, std::size_t count, double seconds)> change =
      [](std::size_t, std::size_t, double seconds) { return seconds; };

  VariantTimer timer() {
    return {.measure =
                [this](const LoopNest& nest) {
                  const auto found =
                      std::find_if(variants.begin(), variants.end(), [&](const Variant& v) { return v.nest == nest; });
                  const auto index = static_cast<std::size_t>(found - variants.begin());
                  measured.push_back(index);
                  return change(index, measured.size(), static_cast<double>(index + 2));
                },
            .measure_automatic =
                [this] {
                  ++automatic;
                  return 1.5;
                },
            .on_progress = {}};
  }
};

}  // namespace

TEST_CASE("there are as many orders as permutations of the loops that have steps") {
  CHECK(nests(planar).size() == 120);
  CHECK(nests(one_by_one).size() == 6);
  CHECK(nests(volume, {.limit = 10'000}).size() == 5040);
  // A dimension of one step has no loop.
  CHECK(nests("mb2ic16ih28oc64oh28kh3ph1").size() == 24);
  CHECK(nests("mb2ic16ih28oc32oh28kh3ph1").size() == 6);
  for (const char* problem : {planar, one_by_one, volume}) {
    std::set<std::string> texts;
    const auto all = nests(problem, {.limit = 10'000});
    for (const LoopNest& nest : all) texts.insert(to_string(nest));
    CHECK(texts.size() == all.size());
  }
  CHECK(to_string(nests(planar).front()) == "n* k c y ky kx x | c16 x14 k32");
  CHECK(to_string(nests(volume).front()) == "k c z y kz ky kx | c16 x k32");
  CHECK(to_string(nests("mb2ic64ih35oc64oh35kh3ph1").front()) == "n* k c y ky kx x | c16 x12 k32");
}

TEST_CASE("a limit keeps the default order and takes the others by a fixed hash") {
  const auto all = nests(volume, {.limit = 10'000}), some = nests(volume), few = nests(volume, {.limit = 3});
  REQUIRE(some.size() == 720);
  CHECK(some.front() == all.front());
  CHECK(some == nests(volume));
  std::set<std::string> texts;
  for (const LoopNest& nest : all) texts.insert(to_string(nest));
  for (const LoopNest& nest : some) CHECK(texts.contains(to_string(nest)));
  REQUIRE(few.size() == 3);
  for (const LoopNest& nest : few) CHECK(std::find(some.begin(), some.end(), nest) != some.end());
  // They come from the whole space, not from its begin.
  CHECK(some[719] != all[719]);
  CHECK(to_string(few[1]) == "c ky z kz k y kx | c16 x k32");
  CHECK_THROWS_WITH(nests(planar, {.limit = 0}), Catch::Contains("limit = 0"));
}

TEST_CASE("tiles cut channels and rows of the default order") {
  const auto tiles = nests(planar, {.space = VariantSpace::tiles});
  std::set<std::string> texts;
  for (const LoopNest& nest : tiles) texts.insert(to_string(nest));
  CHECK(texts.size() == tiles.size());
  // k: a step (32) or all (64); c: 16 or all; y: 1, 7, 14 or all (28). Tiles of one step are loops as the default has.
  // So the default order is there four times: without tiles, and with steps as tiles of k, of k and c, and of all.
  CHECK(tiles.size() == 2 * 2 * 4 - 3);
  CHECK(texts.contains("n* y k c y7 ky kx x | c16 x14 k32"));
  const auto large = nests("mb2ic256ih56oc256oh56kh3ph1", {.space = VariantSpace::tiles});
  CHECK(large.size() == 3 * 3 * 5 - 3);
  const auto all = nests(one_by_one, {.space = VariantSpace::all, .limit = 120});
  const auto orders = nests(one_by_one);
  for (std::size_t i = 0; i < orders.size(); ++i) CHECK(all[i] == orders[i]);
  CHECK(all.size() > orders.size());
}

TEST_CASE("all variants are valid in every direction, and so are those of f64 and of strides") {
  for (const char* problem : {planar, one_by_one, "mb2ic64ih28oc64oh14kh3sh2ph1", "mb2ic3ih30oc20oh30kh3ph1"}) {
    for (const Direction direction : directions) {
      ConvProblem p = parse_problem(problem);
      for (const DataType type : {DataType::f32, DataType::f64}) {
        p.type = type;
        const auto all = spaces(p, direction);
        for (const LoopNest& nest : variant_nests(p, direction, {.space = VariantSpace::all, .limit = 150})) {
          INFO(problem << " " << to_string(nest));
          CHECK_NOTHROW(validate(nest, all));
          CHECK(parse_nest(to_string(nest)) == nest);
        }
      }
    }
  }
}

TEST_CASE("problems with groups are not in this space") {
  CHECK_THROWS_AS(nests("g4ic64ih28oc64oh28kh3ph1"), Unsupported);
  CHECK_THROWS_WITH(nests("g64ic64ih28oc64oh28kh3ph1"), Catch::Contains("64 groups: not in this space"));
}

TEST_CASE("refused candidates are counted by reason, and the others have costs of both models") {
  const auto accept = [](const LoopNest& nest) {
    if (nest.loops[1].dim == Dim::kx) return "kx is no outer loop";
    return nest.loops[1].dim == Dim::ky ? "ky is none either" : "";
  };
  const VariantList some = list(planar, {}, accept);
  CHECK(some.candidates == 120);
  CHECK(some.taken == 120);
  CHECK(some.variants.size() == 72);
  CHECK(some.refused == std::map<std::string, std::size_t>{{"kx is no outer loop", 24}, {"ky is none either", 24}});
  const auto problem = parse_problem(planar);
  const auto all = spaces(problem, Direction::forward);
  const Variant& one = some.variants[7];
  CHECK(one.reuse_cost == reuse_cost(one.nest, all, 4, reuse_levels(machine_model())));
  CHECK(one.model_seconds == nest_cost(one.nest, problem, Direction::forward, machine_model()).seconds());
  const VariantList limited = list(planar, {.limit = 10}, accept_all);
  CHECK(limited.candidates == 120);
  CHECK(limited.taken == 10);
}

TEST_CASE("ranks sort by one model, then by the other, then by the place") {
  std::vector<Variant> all(4);
  const std::array reuse{2.0, 1.0, 1.0, 1.0}, seconds{1.0, 3.0, 2.0, 3.0};
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].reuse_cost = reuse[i];
    all[i].model_seconds = seconds[i];
  }
  CHECK(ranked(all, VariantRank::reuse) == std::vector<std::size_t>{2, 1, 3, 0});
  CHECK(ranked(all, VariantRank::seconds) == std::vector<std::size_t>{0, 2, 1, 3});
}

TEST_CASE("a contest measures every variant, controls, and finalists in turn") {
  VariantList found = list(planar, {.limit = 40}, accept_all);
  FakeTimer fake{.variants = found.variants};
  const std::vector<std::size_t> first{5, 3, 20};
  std::vector<std::size_t> all_of;
  VariantTimer timer = fake.timer();
  timer.on_progress = [&](std::size_t done, std::size_t all) {
    CHECK(done <= all);
    all_of.push_back(all);
    return true;
  };
  const auto contest = measure_variants(found.variants, first, timer);
  REQUIRE(contest);
  CHECK(contest->steady);
  CHECK(contest->passes == 1);
  CHECK(contest->pick == 3);
  CHECK(contest->best == 0);
  CHECK(contest->control == std::vector<double>(3, 2.0));
  CHECK(found.variants[17].measured == 19.0);
  CHECK(fake.measured.size() == 40 + 3 + 3 * 9);
  CHECK(fake.automatic == 9);
  CHECK(all_of.size() == all_of.front());
  for (const Finalist& one : contest->finalists) CHECK(one.rounds.size() == 9);
  CHECK(contest->finalist("pick").seconds() == 5);
  CHECK(contest->finalist("automatic").seconds() == 1.5);
  CHECK_THROWS_WITH(contest->finalist("worst"), Catch::Contains("no finalist"));
}

TEST_CASE("an unsteady control repeats the measurement once, and then marks it") {
  VariantList found = list(planar, {.limit = 40}, accept_all);
  FakeTimer fake{.variants = found.variants};
  // The second control of the first pass is slow: call 1 is a control, 2 to 17 are variants, 18 is a control.
  fake.change = [](std::size_t, std::size_t count, double seconds) { return count == 18 ? 1.2 * seconds : seconds; };
  auto contest = measure_variants(found.variants, std::vector<std::size_t>{0}, fake.timer());
  REQUIRE(contest);
  CHECK(contest->passes == 2);
  CHECK(contest->steady);
  fake.measured.clear();
  fake.change = [](std::size_t index, std::size_t count, double seconds) {
    return index == 0 && count % 2 == 0 ? 1.2 * seconds : seconds;
  };
  contest = measure_variants(found.variants, std::vector<std::size_t>{0}, fake.timer());
  REQUIRE(contest);
  CHECK(contest->passes == 2);
  CHECK_FALSE(contest->steady);
  // Nothing is averaged: 9 rounds of the finalists, the lower quartile counts.
  Finalist one{.name = "pick", .index = 0, .rounds = {9, 8, 7, 1, 2, 3, 6, 5, 4}};
  CHECK(one.seconds() == 3);
}

TEST_CASE("a contest ends when it is told to") {
  VariantList found = list(planar, {.limit = 40}, accept_all);
  FakeTimer fake{.variants = found.variants};
  VariantTimer timer = fake.timer();
  timer.on_progress = [](std::size_t done, std::size_t) { return done < 7; };
  CHECK_FALSE(measure_variants(found.variants, std::vector<std::size_t>{0}, timer));
  CHECK(fake.measured.size() == 7);
  CHECK_THROWS_WITH(measure_variants(found.variants, {}, timer), Catch::Contains("no variant to measure"));
}
