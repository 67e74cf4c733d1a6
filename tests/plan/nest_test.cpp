// Text, validity and order of loop nests, and the iteration spaces of problems.
#include "convolume/nest.hpp"

#include <map>

#include "testing/random_nest.hpp"
#include "testing/random_problem.hpp"
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tests/plan/nest_oracle.hpp"

using namespace convolume;
using namespace convolume::plan;
using Catch::Contains;

namespace {

constexpr std::array<const char*, 7> paper_nests{
    "n1* k128* z4* y14* c16 k32 z1 y1 x14 | kz3 ky3 kx3 c16 x14 k32",  // direct, forward
    "n* k* z* y* c k64 z2 y4 x | kz ky kx c16 x14 k32",                // the same in regions
    "n* k c y ky kx | x k16 c16",                                      // paper 004, Figure 6
    "y* x ky kx x4 | c k n",                                           // paper 003, Algorithm 3
    "y x ky kx | k c n",                                               // paper 003, Algorithm 2
    "y x c k | y32 x32 c16 k16 ky kx",                                 // paper 001, Listing 1.1
    "y56 x56 k256 c128 k16 c16 y8 x8 | ky3 kx3",                       // paper 000, Conv4
};

ConvProblem small_problem() { return parse_problem("mb2ic32id4ih9iw20oc64kd3ph1pw1pd1"); }

std::string refusal_of(const std::string& text, const ConvProblem& p, Direction direction = Direction::forward) {
  try {
    validate(parse_nest(text), spaces(p, direction));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the text of a nest is read and written") {
  for (const char* text : paper_nests) {
    INFO(text);
    const LoopNest nest = parse_nest(text);
    CHECK(to_string(nest) == text);
    CHECK(parse_nest(to_string(nest)) == nest);
  }
  const LoopNest nest = parse_nest("  n*  kz3|x14 k32\t");
  CHECK(to_string(nest) == "n* kz3 | x14 k32");
  CHECK(nest.microkernel == 2);
  CHECK(nest.loops[0] == Loop{.dim = Dim::n, .extent = Loop::all, .parallel = true});
  CHECK(nest.loops[1] == Loop{.dim = Dim::kz, .extent = 3});
  CHECK(to_string(parse_nest("| x")) == "| x");
}

TEST_CASE("nests of the papers fit their problems") {
  const auto fits = [](std::size_t i, const char* problem) {
    INFO(paper_nests[i]);
    CHECK(refusal_of(paper_nests[i], parse_problem(problem)).empty());
  };
  fits(0, "ic16id4ih14iw14oc128kd3pd1");
  fits(1, "mb2ic32id7ih14iw20oc128kd3pd1");
  fits(2, "mb28ic64ih30iw30oc128kh3sh2ph1");
  fits(3, "mb128ic64ih66iw66oc64oh64kh3");
  fits(4, "mb128ic64ih66iw66oc64oh64kh3");
  fits(5, "ic64ih48iw64oc128kh5ph2");
  fits(6, "ic128ih56iw56oc256kh3ph1");
}

TEST_CASE("blocking strings of paper 000 are read and written") {
  const LoopNest nest = parse_nest("y56 x56 k256 c128 k16 c16 y8 x8 | ky3 kx3");
  const std::string text = "Fw(3)Fh(3)X0(8)Y0(8)C0(16)K0(16)C1(128)K1(256)X1(56)Y1(56)";
  CHECK(blocking_string(nest) == text);
  CHECK(parse_blocking_string(text) == nest);
  CHECK(to_string(parse_blocking_string("FwFhX0(8)Y0(8)C0(16)K0(16) C1K1X1Y1")) == "y x k c k16 c16 y8 x8 | ky kx");
  CHECK(to_string(parse_blocking_string("XYCK")) == "k c y | x");
  CHECK(to_string(parse_blocking_string("K0(4)C0(8)|FwFhFdX0Y0Z0N0C1K1")) == "k c n z y x kz ky kx | c8 k4");
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto all = test::nest_case({.stream = 18}, seed).spaces;
    LoopNest random = test::random_nest(all, seed);
    for (Loop& loop : random.loops) loop.parallel = loop.separate = false;
    INFO(to_string(random));
    CHECK(parse_blocking_string(blocking_string(random)) == random);
  }
  const auto refuses = [](const char* blocking, const char* why) {
    INFO(blocking);
    CHECK_THROWS_WITH(parse_blocking_string(blocking), Contains(blocking) && Contains(why));
  };
  refuses("", "no loops");
  refuses("FwQ", "position");
  refuses("X0X1", "'X1' at position 2 surrounds");
  refuses("X0(8)X2", "'X2' at position 5 is not level 1");
  refuses("X(8", "'X(8' at position 0 has no '(extent)'");
  refuses("X0(0)", "invalid extent");
  refuses("X0(8)(9)", "invalid extent");
  refuses("X(99999999999999999999)", "invalid number");
  refuses("X|Y|C", "second '|'");
  refuses("|X", "no loop before");
}

TEST_CASE("text that is no nest is refused, and the error points to the token") {
  const auto refuses = [](const std::string& text, const std::string& why) {
    INFO(text);
    CHECK_THROWS_WITH(parse_nest(text), Contains(text) && Contains(why));
  };
  refuses("", "'|' is missing");
  refuses("n* k", "'|' is missing");
  refuses("n* k |", "no loop stands behind '|'");
  refuses("n q3 | x", "'q3' at position 2 has no dimension; write dimensions");
  refuses("n k0 | x", "'k0' at position 2 has no iterations");
  refuses("n k-3 | x", "'k-3' at position 2 ends with '-3'");
  refuses("n k99999999999999999999 | x", "'k99999999999999999999' at position 2 has an extent that does not fit");
  refuses("n k16*3 | x", "ends with '*3'");
  refuses("n k16 | x junk", "'junk' at position 10 has no dimension");
  refuses("n | x | k", "'|' at position 6 is the second");
  refuses("n k16 k32 | x", "loop 3 'k32' covers more than loop 2");
  refuses("n k16 k | x", "loop 3 'k' covers more than loop 2");
  refuses("n k16 c k16 | x", "loop 4 'k16' stands twice");
  refuses("n x | y y", "loop 4 'y' stands twice");
  std::string many;
  for (int i = 100; i > 0; --i) many += fmt::format("x{} ", i);
  refuses(many + "| k", "is loop 65");
}

TEST_CASE("a nest that does not fit its problem is refused, with loop, value and remedy") {
  const ConvProblem p = small_problem();
  const char* good = "n* k* z* y* c k32 x | kz ky kx c16 x14 k16";
  CHECK(refusal_of(good, p).empty());
  CHECK_THAT(refusal_of("n* k* z* y* k32 x | kz ky kx x14 k16", p),
             Contains("no loop covers 'c', which has 32 iterations; add 'c'"));
  CHECK_THAT(refusal_of("n* k* z* y* c k32 x | ky kx c16 x14 k16", p), Contains("'kz'"));
  CHECK_THAT(refusal_of("n* k128 z y c x | kz ky kx", p),
             Contains("loop 2 'k128' covers 128 of 64 iterations") && Contains("write 'k' or 'k64'"));
  CHECK_THAT(refusal_of("n* k32 z y c x | kz ky kx", p), Contains("covers 32 of 64"));
  CHECK_THAT(refusal_of("n* k z y c x | kz ky kx x21", p),
             Contains("loop 10 'x21' covers more than the 20 iterations"));
  CHECK_THAT(refusal_of("n* c* k z y x | kz ky kx", p), Contains("loop 2 'c*'") && Contains("summed over"));
  CHECK_THAT(refusal_of("n k* z y c x | kz ky kx", p), Contains("parallel inside of one that is not"));
  CHECK_THAT(refusal_of("n* z* k* y c x | kz ky kx", p), Contains("order n k c z y"));
  CHECK_THAT(refusal_of("n* x* z y c k | kz ky kx", p), Contains("whole rows"));
  CHECK_THAT(refusal_of("n* k* k32* z y x c | kz ky kx", p), Contains("so is the loop outside"));
  CHECK_THAT(refusal_of("n* k z y x c | kz ky kx*", p), Contains("parallel inside"));
  CHECK_THAT(refusal_of("n* k* z y x c | kz ky kx", p, Direction::backward_data), Contains("summed over"));
  CHECK(refusal_of("n* c* z y x k | kz ky kx", p, Direction::backward_data).empty());
  const auto weights = Direction::backward_weights;
  CHECK(refusal_of("n+* z+* y+* k* c* y2 x | kz ky kx", p, weights).empty());
  CHECK(refusal_of("n+ z+ k c y x | kz ky kx", p, weights).empty());
  CHECK_THAT(refusal_of("n* k c z y x | kz ky kx", p, weights), Contains("summed over") && Contains("write '+*'"));
  CHECK_THAT(refusal_of("n k c z y x | kz+ ky kx", p, weights), Contains("only loops over n, z and y"));
  CHECK_THAT(refusal_of("n k c z+ y x | kz ky kx", p, weights), Contains("inside of a loop without"));
  CHECK_THAT(refusal_of("z+ n+ k c y x | kz ky kx", p, weights), Contains("order n z y"));
  CHECK_THAT(refusal_of("n+ k c z y x | kz ky kx", p), Contains("only backward weights"));
  CHECK_THROWS_AS(bind(parse_nest("n k c x | kz ky kx"), spaces(p, Direction::forward).front()), InvalidArgument);
}

TEST_CASE("a nest visits every iteration once, in its order") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto [p, all] = test::nest_case({.stream = 1, .most_voxels = 7, .most_flops = 1e5}, seed);
    const LoopNest nest = test::random_nest(all, seed);
    INFO(to_string(p) << ": " << to_string(nest));
    REQUIRE_NOTHROW(validate(nest, all));
    for (const NestSpace& space : all) {
      std::vector<bool> seen(static_cast<std::size_t>(space.macs()));
      bool once = true;
      std::vector<index_t> before;
      bool rising = true;
      const std::size_t depth = nest.loops.size();
      const auto bound = bind(nest, space);
      for_each_tile(nest, space, depth, [&](const Extents& begin, const Extents& end) {
        std::size_t at = 0;
        for (std::size_t i = 0; i < begin.size(); ++i) {
          once = once && end[i] == begin[i] + 1;
          at = at * static_cast<std::size_t>(space.extent[i]) + static_cast<std::size_t>(begin[i]);
        }
        once = once && !seen[at];
        seen[at] = true;
        const std::vector<index_t> time = test::positions_of(bound, begin);
        rising = rising && (before.empty() || before < time);
        before = time;
      });
      CHECK(once);
      CHECK(rising);
      CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
    }
  }
}

TEST_CASE("the spaces of a direction hold every multiply-add of the problem once") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const ConvProblem p = test::nest_case({.stream = 2, .most_voxels = 9, .most_flops = 1e5}, seed).problem;
    INFO(to_string(p) << " transposed " << p.transposed);
    const auto wanted = test::multiply_adds(p);
    for (const Direction direction : directions) {
      std::map<test::MultiplyAdd, int> found;
      for (const NestSpace& space : spaces(p, direction)) {
        test::for_each_iteration(space, [&](const Extents& at) {
          if (const auto one = test::elements_of(space, at)) ++found[*one];
        });
      }
      CHECK(found == wanted);
    }
  }
  CHECK_THROWS_AS(spaces(parse_problem("g8ic8id5oc8kd3"), Direction::forward), Unsupported);
}
