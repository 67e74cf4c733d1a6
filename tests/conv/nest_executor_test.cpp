// The direct engine runs loop nests: any order of loops around its microkernels, in all directions, layouts and types.
#include <algorithm>

#include "testing/direct_nests.hpp"
#include "testing/engine_checks.hpp"
#include "testing/random_problem.hpp"
#include "testing/sanitizers.hpp"
#include "testing/simd_targets.hpp"
#include <fmt/format.h>

#include "conv/caches/source_hash.hpp"
#include "conv/choice.hpp"
#include "conv/direct/direct_nest.hpp"
#include "convolume/blocking.hpp"
#include "convolume/cpu.hpp"
#include "core/random.hpp"
#include "plan/groups.hpp"

using namespace convolume;
using Catch::Contains;
using plan::Dim;
using plan::Direction;
using plan::Loop;
using plan::LoopNest;
using test::ConvCase;

namespace {

/// Draws nests that end with a microkernel of the engine.
class NestDraws {
 public:
  NestDraws(const ConvProblem& p, std::uint64_t seed) : p_(p), key_{.seed = seed, .a = 77} {}

  conv::Nests nests() { return {voxel_nest(Direction::forward), voxel_nest(Direction::backward_data), weight_nest()}; }

 private:
  index_t below(index_t n) { return static_cast<index_t>(uniform_below(key_, next_++, static_cast<std::uint64_t>(n))); }

  index_t extent(Direction direction, Dim dim) const {
    index_t most = 1;
    for (const plan::NestSpace& space : plan::spaces(p_, direction)) most = std::max(most, space.of(dim));
    return most;
  }
  /// Returns falling extents of up to two loops outside of a tile of `last`, in multiples of `unit`.
  std::vector<Loop> outer(Dim dim, index_t all, index_t last, index_t unit) {
    std::vector<Loop> loops;
    if (all <= last) return loops;
    loops.push_back({.dim = dim});
    const index_t middle = last + unit * below((all - last + unit - 1) / unit);
    if (middle > last && middle < all) loops.push_back({.dim = dim, .extent = middle});
    return loops;
  }
  /// Merges lists of loops in a random order. The loops of a list keep their order.
  void merge(std::vector<std::vector<Loop>> lists, LoopNest& nest) {
    std::erase_if(lists, [](const auto& list) { return list.empty(); });
    while (!lists.empty()) {
      auto& list = lists[static_cast<std::size_t>(below(static_cast<index_t>(lists.size())))];
      nest.loops.push_back(list.front());
      list.erase(list.begin());
      std::erase_if(lists, [](const auto& one) { return one.empty(); });
    }
  }
  /// Moves the outermost loops of some dimensions to the front, and marks some of them.
  void take_prefix(std::initializer_list<Dim> dims, bool Loop::*mark, bool Loop::*also,
                   std::vector<std::vector<Loop>>& lists, LoopNest& nest) {
    for (const Dim dim : dims) {
      for (auto& list : lists) {
        if (list.empty() || list.front().dim != dim || below(3) == 0) continue;
        Loop loop = list.front();
        loop.*mark = true;
        if (also != nullptr) loop.*also = true;
        nest.loops.push_back(loop);
        list.erase(list.begin());
      }
    }
  }

  LoopNest voxel_nest(Direction direction) {
    const bool forward = direction == Direction::forward;
    const Dim lanes = forward ? Dim::k : Dim::c, terms = forward ? Dim::c : Dim::k;
    const index_t block = channel_block(p_.type), all_lanes = extent(direction, lanes),
                  all_terms = extent(direction, terms);
    // Microkernels compute one, two or four blocks of lanes.
    const index_t most_blocks = (all_lanes + block - 1) / block >= 4 ? 3 : 2, lane_blocks = 1 << below(most_blocks);
    const index_t lane_tile = std::min(all_lanes, block * lane_blocks);
    // Together they compute voxels of a row, or samples.
    const Dim together = p_.batch > 1 && all_terms > 1 && below(3) == 0 ? Dim::n : Dim::x;
    const index_t most = std::min(extent(direction, together), 1 + below(lane_blocks == 4 ? 6 : 14));
    const index_t row = together == Dim::x ? most : 1, samples = together == Dim::n ? most : 1;
    const index_t held = std::min(all_terms, block * (1 + below(3)));
    std::vector<std::vector<Loop>> lists{outer(Dim::n, p_.batch, samples, 1), outer(lanes, all_lanes, lane_tile, block),
                                         outer(terms, all_terms, held, block),
                                         // A loop over results ends before the microkernel with single planes and rows.
                                         outer(Dim::z, extent(direction, Dim::z), 1, 1),
                                         outer(Dim::y, extent(direction, Dim::y), 1, 1),
                                         outer(Dim::x, extent(direction, Dim::x), row, 1)};
    std::vector<std::vector<Loop>> sums;
    if (held > block) sums.push_back({{.dim = terms, .extent = held}});
    for (const Dim dim : {Dim::kz, Dim::ky, Dim::kx}) {
      const index_t taps = extent(direction, dim), tile = 1 + below(taps);
      lists.push_back(outer(dim, taps, tile, 1));
      if (tile > 1) sums.push_back({{.dim = dim, .extent = tile}});
    }
    LoopNest nest;
    take_prefix(forward ? std::initializer_list<Dim>{Dim::n, Dim::k, Dim::z, Dim::y}
                        : std::initializer_list<Dim>{Dim::n, Dim::c, Dim::z, Dim::y},
                &Loop::parallel, nullptr, lists, nest);
    merge(std::move(lists), nest);
    nest.microkernel = nest.loops.size();
    merge(std::move(sums), nest);
    if (std::min(all_terms, block) > 1) nest.loops.push_back({.dim = terms, .extent = std::min(all_terms, block)});
    if (most > 1) nest.loops.push_back({.dim = together, .extent = most});
    nest.loops.push_back({.dim = lanes, .extent = lane_tile});
    return nest;
  }

  LoopNest weight_nest() {
    const Direction direction = Direction::backward_weights;
    const Dim lanes = p_.transposed ? Dim::c : Dim::k, terms = p_.transposed ? Dim::k : Dim::c;
    const index_t block = channel_block(p_.type), all_lanes = extent(direction, lanes),
                  all_terms = extent(direction, terms);
    const index_t lane_tile = std::min(all_lanes, block * (1 + below(2))), term_tile = std::min(all_terms, block);
    // Products sum voxels, or one voxel of several samples.
    const bool by_sample = p_.batch > 1 && all_terms > 1 && below(3) == 0;
    const index_t samples = by_sample ? 1 + below(p_.batch) : 1;
    const Extent3 voxels{1 + below(extent(direction, Dim::z)), 1 + below(extent(direction, Dim::y)),
                         1 + below(extent(direction, Dim::x))};
    const Extent3 piece = by_sample ? Extent3{1, 1, 1} : voxels;
    std::vector<std::vector<Loop>> lists{outer(Dim::n, p_.batch, samples, 1),
                                         outer(Dim::z, extent(direction, Dim::z), piece.z, 1),
                                         outer(Dim::y, extent(direction, Dim::y), piece.y, 1),
                                         outer(Dim::x, extent(direction, Dim::x), piece.x, 1),
                                         outer(lanes, all_lanes, lane_tile, block),
                                         outer(terms, all_terms, term_tile, block),
                                         outer(Dim::kz, p_.kernel.z, 1, 1),
                                         outer(Dim::ky, p_.kernel.y, 1, 1),
                                         outer(Dim::kx, p_.kernel.x, 1, 1)};
    LoopNest nest;
    take_prefix({Dim::n, Dim::z, Dim::y}, &Loop::separate, &Loop::parallel, lists, nest);
    take_prefix({Dim::k, Dim::c}, &Loop::parallel, nullptr, lists, nest);
    merge(std::move(lists), nest);
    nest.microkernel = nest.loops.size();
    for (const auto& [dim, tile] : {std::pair{Dim::n, samples}, std::pair{Dim::z, piece.z}, std::pair{Dim::y, piece.y},
                                    std::pair{Dim::x, piece.x}}) {
      if (tile > 1) nest.loops.push_back({.dim = dim, .extent = tile});
    }
    if (term_tile > 1) nest.loops.push_back({.dim = terms, .extent = term_tile});
    nest.loops.push_back({.dim = lanes, .extent = lane_tile});
    return nest;
  }

  ConvProblem p_;
  RandomKey key_;
  std::uint64_t next_ = 0;
};

/// A problem with nests for one of its groups.
struct NestProblem {
  ConvProblem problem;
  conv::Nests nests;
  std::string choice;
};

NestProblem draw(std::uint64_t seed, DataType type) {
  for (std::uint64_t again = seed;; again += 1'000'000) {
    ConvProblem p = test::random_problem(
        {.stream = 80, .most_channels = 70, .most_voxels = 9, .depthwise = false, .most_flops = 4e6}, again);
    p.type = type;
    const ConvProblem one = p.groups > 1 ? plan::one_group(p) : p;
    // If every window lies in the padding, nothing is multiplied, and there is nothing to order.
    const bool empty = plan::is_depthwise(p) || plan::spaces(one, Direction::backward_data).empty() ||
                       plan::spaces(one, Direction::forward).empty();
    if (empty) continue;
    const conv::Nests nests = NestDraws(one, seed).nests();
    return {p, nests, test::choice_text(nests)};
  }
}

std::string refusal_of(const char* fwd) {
  const ConvProblem p = parse_problem("mb2ic40id6oc48kd3pd1");
  conv::Nests nests = test::direct_nests(p);
  try {
    nests[0] = plan::parse_nest(fwd);
    ConvPlan::make(p, {.choice = test::choice_text(nests)});
  } catch (const Unsupported& error) {
    return std::string("unsupported: ") + error.what();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("direct runs random nests: integers are exact, random data is accurate") {
  for (std::uint64_t seed = 0; seed < (test::sanitized ? 25 : 200); ++seed) {
    const NestProblem one = draw(seed, seed % 4 == 3 ? DataType::f64 : DataType::f32);
    CAPTURE(seed, to_string(one.problem), one.problem.transposed, one.choice);
    const ConvOptions options{.choice = one.choice};
    // Gradients of activations would add errors of their own. Other tests have them.
    ConvProblem plain = one.problem;
    plain.epilogue.activation = {};
    if (plain.type == DataType::f64) {
      test::check_against_reference<double>(plain, options, 1e-14);
      continue;
    }
    test::check_against_reference<float>(plain, options, 2e-6);
    if (test::too_slow_here(plain)) continue;
    ConvCase<float> ours(plain, options, true), reference(plain, {.engine = Engine::reference}, true);
    CHECK(ours.plan.choice() == one.choice);
    ours.run();
    reference.run();
    test::check_same_bits(ours, reference);
  }
}

TEST_CASE("random nests give the same bits on 1, 2 and 8 threads and for any parallel loops") {
  for (std::uint64_t seed = 500; seed < (test::sanitized ? 506 : 540); ++seed) {
    const NestProblem one = draw(seed, DataType::f32);
    CAPTURE(seed, to_string(one.problem), one.choice);
    ConvCase<float> first(one.problem, {.choice = one.choice});
    first.run();
    for (const int threads : {2, 8}) {
      ConvCase<float> other(one.problem, {.choice = one.choice}, false, threads);
      other.run();
      test::check_same_bits(first, other);
    }
    // Fewer parallel loops: all but the outermost ones.
    conv::Nests nests = one.nests;
    for (LoopNest& nest : nests) {
      auto kept = static_cast<std::ptrdiff_t>(seed % 3);
      for (Loop& loop : nest.loops) loop.parallel = loop.parallel && kept-- > 0;
    }
    ConvCase<float> fewer(one.problem, {.choice = test::choice_text(nests)}, false, 2);
    fewer.run();
    test::check_same_bits(first, fewer);
  }
}

TEST_CASE("random nests give the same bits in both layouts") {
  for (std::uint64_t seed = 600; seed < (test::sanitized ? 604 : 625); ++seed) {
    NestProblem one = draw(seed, DataType::f32);
    if (one.problem.groups > 1) continue;  // groups have to fill channel blocks
    CAPTURE(seed, one.choice);
    test::check_layouts<float>(one.problem, {.choice = one.choice}, seed % 3 != 0, seed % 3 != 1,
                               Activation::Kind::leaky_relu);
  }
}

TEST_CASE("random nests are accurate on every SIMD target") {
  const std::string before = simd_target();
  for (const auto& target : available_simd_targets()) {
    if (test::sanitized && target != before) continue;
    set_simd_target(target);
    for (std::uint64_t seed = 700; seed < (test::sanitized ? 702 : 715); ++seed) {
      NestProblem one = draw(seed, DataType::f32);
      one.problem.epilogue.activation = {};
      CAPTURE(target, seed, one.choice);
      test::check_against_reference<float>(one.problem, {.choice = one.choice}, 2e-6);
    }
  }
  set_simd_target(before);
}

TEST_CASE("rows of taps may be split where results read mostly padding") {
  for (const auto& [text, choice] :
       {std::pair{"ic16id1ih1iw4oc16kd1kh1kw6pw1", "direct fwd=|.kx.c.k bwd_d=|.kx.k.kx3.x.c bwd_w=kx.|.c.k"},
        std::pair{"ic16id1ih1iw1oc16kd1kh1kw5pw3", "direct fwd=|.kx.c.kx3.x.k bwd_d=|.k.kx.c bwd_w=kx.|.x.c.k"}}) {
    CAPTURE(text);
    test::check_against_reference<float>(parse_problem(text), {.choice = choice}, 2e-6);
  }
}

TEST_CASE("a choice text of direct keeps its bits") {
  // The texts have all kinds of loops. A change of these numbers is a change of what users have stored.
  struct Recorded {
    const char *problem, *choice;
    std::uint64_t fused, other;  // with fused multiply-adds, and without
  };
  const std::string before = simd_target();
  for (const Recorded& one :
       {Recorded{"mb2ic40id6oc48kd3pd1",
                 "direct fwd=n*.z*.c.k.y.x.|.kz.ky.kx.c16.x5.k32 bwd_d=n*.z*.k.c.y.x.|.k32.kx.ky.kz.k16.x6.c32 "
                 "bwd_w=n+*.z+.k.c.kz.ky.kx.|.z3.y.x.c16.k32",
                 0x61515bbcf3d065f1, 0x4741b62a99f4db57},
        Recorded{"ic16ih30iw30oc16kh4kw4sh2sw2ph1pw1",
                 "direct fwd=y*.y4.x.|.ky.kx.c16.x15.k16 bwd_d=y*.ky.y4.x.|.kx.k16.x9.c16 "
                 "bwd_w=y+*.ky.kx.y8.|.y2.x.c16.k16",
                 0x70bc408cfbf8e525, 0x5d9a8815e4b9949f},
        Recorded{"ic1ih30iw61oc40kh4kw5ph2pw2",
                 "direct fwd=y*.k.y4.x.|.ky.kx.x14.k32 bwd_d=y*.y4.x.|.k.ky.kx.k16.x28 "
                 "bwd_w=y+*.k.ky.kx.y8.|.y2.x.k32",
                 0x29985b6ed2bbba40, 0xce35c80930595be8},
        Recorded{"ic40id4ih9iw29oc16kd3pd1",
                 "direct fwd=z*.c.y.x.|.c32.kz.ky.c16.kx.x28.k16 bwd_d=z*.c.y.x.|.kz.ky.kx.k16.kx2.x28.c16 "
                 "bwd_w=z+*.c.kz.ky.kx.y.|.y2.x.c16.k16",
                 0xa257e5a91787dd25, 0x37c53735c84f3fac},
        Recorded{"ic16ih9iw61oc16kh3kw5sw2ph1pw2",
                 "direct fwd=y*.x.|.ky.c16.kx.x24.k16 bwd_d=y*.x.|.ky.k16.kx.x24.c16 bwd_w=y+*.ky.kx.|.x.c16.k16",
                 0x8f6e05966817187e, 0xa4294a6abe405eff},
        Recorded{"ic16id3ih9iw31oc16kd1",
                 "direct fwd=z*.y.x.|.c16.x28.k16 bwd_d=z*.y.x.|.k16.x28.c16 bwd_w=z+*.y.|.y2.x.c16.k16",
                 0xf95c19cc3515e104, 0xff34495aa16499e8},
        Recorded{"ic70ih5iw13oc80kh3ph1pw1",
                 "direct fwd=y*.k.x.|.c.ky.kx.c16.x6.k64 bwd_d=y*.c.x.|.k.ky.kx.k16.x6.c64 "
                 "bwd_w=y+*.k.c.ky.kx.|.x.c16.k32",
                 0x2c1d01b48a533900, 0x5a1e4a0d49b3ffbf}}) {
    for (const auto& target : available_simd_targets()) {
      if (test::sanitized && target != before) continue;
      set_simd_target(target);
      ConvCase<float> run(parse_problem(one.problem), {.choice = one.choice});
      // Draws that depend on no mathematical function of the C library.
      for (const auto& [tensor, seed] : {std::pair{&run.x, 1}, std::pair{&run.w, 2}, std::pair{&run.dy, 3}}) {
        const RandomKey key{.seed = static_cast<std::uint64_t>(seed)};
        for (index_t i = 0; i < tensor->elements(); ++i) {
          tensor->data()[i] = static_cast<float>(uniform(key, static_cast<std::uint64_t>(i))) - 0.5F;
        }
      }
      run.run();
      const std::uint64_t digest =
          conv::hash_tensor(run.y.view()) ^ 3 * conv::hash_tensor(run.dx.view()) ^ 5 * conv::hash_tensor(run.dw.view());
      CAPTURE(target, one.choice);
      CHECK(digest == (test::has_fused_multiply_adds(target) ? one.fused : one.other));
    }
  }
  set_simd_target(before);
}

TEST_CASE("plans of very long rows and of very many phases are made at once") {
  CHECK(ConvPlan::make(parse_problem("ic16ih1iw70000000oc16kh1kw9"), {.engine = Engine::direct}).choice().size() > 10);
  CHECK(ConvPlan::make(parse_problem("ic1oc768id96kd16sd16"), {.engine = Engine::direct}).choice().size() > 10);
}

TEST_CASE("a nest that would need a list for each of millions of tiles is refused") {
  const ConvProblem p = parse_problem("ic16oc16id128kd7pd3");
  conv::Nests nests = test::direct_nests(p);
  nests[0] = plan::parse_nest("n z y x k c kz ky kx | c16 k16");
  CHECK_THROWS_WITH(ConvPlan::make(p, {.choice = test::choice_text(nests)}),
                    Contains("lists") && Contains("larger tiles"));
}

TEST_CASE("nests are refused for depthwise problems") {
  const std::string nests = ConvPlan::make(parse_problem("ic40id6oc48kd3pd1"), {.engine = Engine::direct}).choice();
  CHECK_THROWS_WITH(ConvPlan::make(parse_problem("g16ic16id6oc16kd3pd1"), {.choice = nests}),
                    Contains("leave the nests out"));
}

TEST_CASE("no candidate has fewer tasks than threads could use, if the first has enough") {
  ConvProblem problem = parse_problem("ic512oc512id8kd3pd1");
  for (const Layout layout : {Layout::plain, Layout::blocked}) {
    problem.x_layout = problem.y_layout = layout;
    for (const Direction direction : {Direction::forward, Direction::backward_data}) {
      const plan::NestSpace space = plan::spaces(problem, direction).front();
      for (const conv::RankedNest& one : conv::rank_nests(problem, direction, machine_model())) {
        double tasks = 1;
        const auto loops = plan::bind(one.nest, space);
        for (std::size_t i = 0; i < loops.size(); ++i) {
          if (one.nest.loops[i].parallel) tasks *= static_cast<double>(loops[i].trips());
        }
        CHECK(tasks >= 4 * machine_model().cores);
      }
    }
  }
}

TEST_CASE("the order of sums decides the bits of direct, and nothing else in a nest does") {
  ConvProblem p = parse_problem("ic40id6oc48kd3pd1");
  const conv::Nests usual = test::direct_nests(p);
  const auto run = [&](const char* fwd) {
    conv::Nests nests = usual;
    nests[0] = plan::parse_nest(fwd);
    ConvCase<float> one(p, {.choice = test::choice_text(nests)});
    one.run();
    return std::move(one.y);
  };
  const auto first = run("z* y* c k y2 x | kz ky kx c16 x6 k32");
  for (const char* same : {"k* z* c k16 z2 y x | kz ky kx c16 x6 k16", "c x y z k | kz ky kx c16 x3 k32",
                           "k c z y x | kz ky kx c16 x k16"}) {
    CAPTURE(same);
    CHECK(test::same_bits(first, run(same)));
  }
  for (const char* other : {"z* y* c k y2 x | ky kz kx c16 x6 k32", "z* y* kz c k y2 x | ky kx c16 x6 k32",
                            "z* y* k y2 x | c kz ky kx c16 x6 k32"}) {
    CAPTURE(other);
    CHECK(!test::same_bits(first, run(other)));
  }
}

TEST_CASE("pieces of a row of nearly equal lengths are one product, which changes no bit") {
  ConvProblem p = parse_problem("mb2ic32ih9iw38oc32oh9ow38kh3ph1kw5pw2");
  const auto loops_over = [&](Dim dim, const char* nest) {
    const conv::DirectMap map(p, Direction::forward);
    const conv::VoxelNest made = conv::compile_voxel_nest(plan::parse_nest(nest), p, Direction::forward, map);
    return std::count_if(made.walk.begin(), made.walk.end(), [&](const auto& loop) { return loop.dim == dim; });
  };
  const auto run = [&](const char* fwd) {
    conv::Nests nests = test::direct_nests(p);
    nests[0] = plan::parse_nest(fwd);
    ConvCase<float> one(p, {.choice = test::choice_text(nests)});
    one.run();
    return std::move(one.y);
  };
  const char* longest = "n* k c ky kx y x | c16 x14 k32";
  const auto expected = run(longest);
  CHECK(loops_over(Dim::x, longest) == 0);
  for (const auto& [nest, loops] : {std::pair{"n* k c ky kx y x | c16 x13 k32", 0},     // three pieces
                                    std::pair{"n* k c ky kx y x | c16 x12 k32", 1}}) {  // four pieces
    CAPTURE(nest);
    CHECK(loops_over(Dim::x, nest) == loops);
    CHECK(test::same_bits(expected, run(nest)));
  }
  // Tiles of a row, and samples instead of voxels.
  CHECK(loops_over(Dim::x, "n* k x c ky kx y x26 | c16 x13 k32") == 1);
  CHECK(test::same_bits(expected, run("n* k x c ky kx y x26 | c16 x13 k32")));
  p = parse_problem("mb40ic64ih2oc96oh2kh1");
  const auto samples = run("k c y x n | c16 n14 k32");
  for (const auto& [nest, loops] : {std::pair{"k n c y x n16 | c16 n8 k32", 1}, std::pair{"k c y x n | c16 n8 k32", 1},
                                    std::pair{"n c y x k n26 | c16 n13 k32", 1}}) {
    CAPTURE(nest);
    CHECK(loops_over(Dim::n, nest) == loops);
    CHECK(test::same_bits(samples, run(nest)));
  }
}

TEST_CASE("direct refuses nests that it cannot run, and says why") {
  CHECK(refusal_of("n* z* y* c k x | kz ky kx c16 x5 k32").empty());
  CHECK_THAT(refusal_of("n* z* y* c k x | kz ky kx c16 x5 k2"),
             Contains("unsupported") && Contains("2 result channels"));
  CHECK_THAT(refusal_of("n* z* y* c k20 x | kz ky kx c16 x5 k16"), Contains("covers 20 of 48"));
  CHECK_THAT(refusal_of("n* z* y* c k k20 x | kz ky kx c16 x5 k16"),
             Contains("loop 5 'k'") && Contains("multiples of 16"));
  CHECK_THAT(refusal_of("n* z* y* c k x | kz ky kx c16 k32 x5"), Contains("unsupported") && Contains("k32"));
  CHECK_THAT(refusal_of("n* z* c k x | y kz ky kx c16 x5 k32"), Contains("no loop over 'y' there"));
  CHECK_THAT(refusal_of("n* z* y* c k x | kz ky kx c4 x5 k32"), Contains("4 summed channels"));
  CHECK_THAT(refusal_of("n* z* y* c c24 k x | kz ky kx c16 x5 k32"),
             Contains("loop 4 'c'") && Contains("multiples of 16"));
  CHECK_THAT(refusal_of("n* z* y* k x | c kz ky kx x5 k32"), Contains("terms of a block innermost"));
  CHECK_THAT(refusal_of("n* z* y* c | kz ky kx c16 x k"), Contains("no microkernel of 48 result channels"));
  CHECK_THAT(refusal_of("n* c* z* y* k x | kz ky kx c16 x5 k32"), Contains("summed over"));
  CHECK_THAT(refusal_of("n* z* y* c k x | kz ky kx c16 x5 k32 junk"), Contains("position"));
  // The nests of another problem.
  const std::string choice = ConvPlan::make(parse_problem("ic40id7oc480kd3pd1"), {.engine = Engine::direct}).choice();
  CHECK_THROWS_WITH(ConvPlan::make(parse_problem("ic40id7oc20kd3pd1"), {.choice = choice}), Contains("nest '"));
}

TEST_CASE("direct takes other tiles on a machine with a small L2 and a slow L3") {
  ConvProblem problem = parse_problem("ic64oc64id40kd3pd1");
  problem.x_layout = problem.y_layout = Layout::blocked;
  MachineModel small = machine_model();
  small.usable_l2_bytes = 128 << 10;
  small.l3_gb_per_s /= 400;
  for (const plan::Direction direction : {plan::Direction::forward, plan::Direction::backward_data}) {
    const auto usual = conv::rank_nests(problem, direction, machine_model());
    const auto smaller = conv::rank_nests(problem, direction, small);
    CHECK(usual.front().nest == conv::candidate_nests(problem, direction, machine_model()).front());
    CHECK(smaller.front().nest != usual.front().nest);
    const auto bytes = [&](const plan::LoopNest& nest) { return nest_cost(nest, problem, direction, small).bytes[1]; };
    CHECK(bytes(smaller.front().nest) < bytes(usual.front().nest));
  }
}

TEST_CASE("nests are ranked by their seconds, and all of them run") {
  for (const char* text : {"ic32oc48id12kd3pd1", "ic3oc16id9kd5", "ic16oc16id8od4kd3sd2pd1", "ic48oc40id9kd1"}) {
    for (const Layout layout : {Layout::plain, Layout::blocked}) {
      ConvProblem problem = parse_problem(text);
      problem.x_layout = problem.y_layout = layout;
      conv::Nests nests = conv::choose_nests(problem, machine_model());
      for (const plan::Direction direction : plan::directions) {
        const auto ranked = conv::rank_nests(problem, direction, machine_model());
        // The first candidate stays first if the differences are small.
        CHECK(std::is_sorted(ranked.begin() + 1, ranked.end(),
                             [](const auto& a, const auto& b) { return a.seconds < b.seconds; }));
        CHECK(ranked.front().seconds <= 1.05 * ranked.back().seconds);
        CHECK(ranked.front().nest == nests[static_cast<std::size_t>(direction)]);
        for (const conv::RankedNest& one : ranked) {
          conv::Nests tried = nests;
          tried[static_cast<std::size_t>(direction)] = one.nest;
          CHECK_NOTHROW(ConvPlan::make(problem, {.choice = test::choice_text(tried)}));
        }
      }
    }
  }
}
