// Footprints, fetches and buffers against enumeration of all elements.
#include <set>

#include "testing/random_nest.hpp"
#include "testing/random_problem.hpp"
#include <catch2/catch.hpp>

#include "convolume/nest.hpp"
#include "tests/plan/nest_oracle.hpp"

using namespace convolume;
using namespace convolume::plan;
using test::at_dim;

namespace {

/// Addresses of elements in a layout. Blocked tensors have channels without a place in the tensor (pad lanes); a
/// stretch goes on over them.
struct Address {
  index_t at = 0;
  index_t previous = -1;  // of the element before it, pad lanes left out; -1 at the beginning
  friend auto operator<=>(const Address&, const Address&) = default;
};

Address voxel_address(index_t n, index_t channel, index_t channels, index_t groups, const Extent3& extent,
                      const Extent3& voxel, index_t block, Layout layout) {
  const index_t all = channels * groups, volume = extent.volume();
  const index_t place = (voxel.z * extent.y + voxel.y) * extent.x + voxel.x;
  if (layout == Layout::plain) {
    const index_t at = (n * all + channel) * volume + place;
    return {at, at - 1};
  }
  // With groups, blocks are those of a group alone, as engines see them.
  const index_t blocks = (channels + block - 1) / block + (groups > 1 ? 1 : 0);
  const index_t b = channel / block, lane = channel % block;
  const index_t at = ((n * blocks + b) * volume + place) * block + lane;
  if (lane > 0) return {at, at - 1};
  if (at == 0) return {at, -1};
  // The lane before lies at the voxel before, whose block may have pad lanes behind its last channel.
  const index_t before = at / block - 1, its_block = before / volume % blocks;
  if (groups > 1 && its_block == blocks - 1) return {at, -1};
  return {at, before * block + std::min(block, channels - its_block * block) - 1};
}

Address weight_address(const NestSpace& s, index_t k, index_t c, const Extent3& tap, Layout layout) {
  const index_t ks = s.of(Dim::k), cs = s.of(Dim::c), taps = s.kernel_extent.volume();
  const index_t t = (tap.z * s.kernel_extent.y + tap.y) * s.kernel_extent.x + tap.x;
  if (layout == Layout::plain) {
    const index_t at = (s.transposed ? c * ks + k : k * cs + c) * taps + t;
    return {at, at - 1};
  }
  const bool k_lanes = s.written == Operand::w ? s.windowed == Operand::x : s.written == Operand::y;
  const index_t lanes = k_lanes ? ks : cs, terms = k_lanes ? cs : ks, lane = k_lanes ? k : c, term = k_lanes ? c : k;
  const index_t b = s.channel_block, term_blocks = (terms + b - 1) / b;
  // Numbers every lane of every term of every tap.
  const auto number = [&](index_t lane_block, index_t term_block, index_t i, index_t term_lane, index_t at_lane) {
    return (((lane_block * term_blocks + term_block) * taps + i) * b + term_lane) * b + at_lane;
  };
  index_t lb = lane / b, tb = term / b, tl = term % b, ll = lane % b, i = t;
  const index_t at = number(lb, tb, i, tl, ll);
  if (ll > 0) return {at, at - 1};
  if (tl > 0) {
    --tl;
  } else if (i > 0) {
    --i;
    tl = std::min(b, terms - tb * b) - 1;
  } else if (tb > 0) {
    --tb;
    i = taps - 1;
    tl = b - 1;
  } else if (lb > 0) {
    --lb;
    tb = term_blocks - 1;
    i = taps - 1;
    tl = std::min(b, terms - tb * b) - 1;
  } else {
    return {at, -1};
  }
  return {at, number(lb, tb, i, tl, std::min(b, lanes - lb * b) - 1)};
}

std::optional<Address> address_of(const NestSpace& s, const Extents& at, Operand operand, Layout layout) {
  const test::Places places = test::places_of(s, at);
  const index_t n = at_dim(at, Dim::n), k = at_dim(at, Dim::k), c = at_dim(at, Dim::c);
  if (operand == Operand::w) return weight_address(s, k, c, places.tap, layout);
  const bool windowed = operand == s.windowed;
  const Extent3 &extent = windowed ? s.source_extent : s.target_extent,
                &voxel = windowed ? places.windowed : places.target;
  if (!test::inside(voxel, extent)) return std::nullopt;
  const Dim dim = operand == Operand::x ? Dim::c : Dim::k;
  return voxel_address(n, operand == Operand::x ? c : k, s.of(dim), s.groups, extent, voxel, s.channel_block, layout);
}

Footprint enumerated(const NestSpace& space, const Extents& begin, const Extents& end, Operand operand, Layout layout) {
  std::set<Address> elements;
  std::set<index_t> places;
  // Only dimensions that the operand depends on are walked.
  Extents last = end;
  for (const Dim dim : all_dims) {
    const auto i = static_cast<std::size_t>(dim);
    if (!test::moves(space, operand, dim)) last[i] = std::min(end[i], begin[i] + 1);
  }
  test::for_each_iteration(
      space,
      [&](const Extents& at) {
        if (const auto address = address_of(space, at, operand, layout)) {
          elements.insert(*address);
          places.insert(address->at);
        }
      },
      begin, &last);
  Footprint footprint{.words = static_cast<index_t>(elements.size())};
  for (const Address& element : elements) footprint.runs += places.contains(element.previous) ? 0 : 1;
  return footprint;
}

/// A problem and a nest, drawn at random.
struct Case : test::NestCase {
  explicit Case(std::uint64_t seed)
      : NestCase(test::nest_case(
            {.stream = 3, .most_channels = 36, .most_voxels = 6, .most_kernel = 4, .most_flops = 2e4}, seed)),
        nest(test::random_nest(spaces, seed)) {}
  LoopNest nest;
};

/// A memory that holds the footprint of the loops from a depth on. It is filled when the position of a loop that moves
/// the footprint, or of a loop outside of such a loop, changes.
Fetch walked(const LoopNest& nest, const NestSpace& space, std::size_t depth, Operand operand, Layout layout) {
  const auto loops = bind(nest, space);
  while (depth > 0 && (loops[depth - 1].trips() == 1 || !test::moves(space, operand, loops[depth - 1].dim))) --depth;
  Fetch sum;
  for_each_tile(nest, space, depth, [&](const Extents& begin, const Extents& end) {
    const Footprint tile = enumerated(space, begin, end, operand, layout);
    sum.loads += 1;
    sum.words += static_cast<double>(tile.words);
    sum.runs += static_cast<double>(tile.runs);
  });
  return sum;
}

}  // namespace

TEST_CASE("footprints have the words and runs that enumeration finds") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const Case one(seed);
    for (const NestSpace& space : one.spaces) {
      INFO(to_string(one.problem) << " transposed " << one.problem.transposed << ": " << to_string(one.nest));
      const std::size_t depth = seed % (one.nest.loops.size() + 1);
      int tiles = 0;
      for_each_tile(one.nest, space, depth, [&](const Extents& begin, const Extents& end) {
        if (++tiles > 40) return;
        for (const Operand operand : operands) {
          for (const Layout layout : {Layout::plain, Layout::blocked}) {
            INFO(name_of(operand) << " " << name_of(layout));
            const Footprint wanted = enumerated(space, begin, end, operand, layout);
            const Footprint got = footprint(space, begin, end, operand, layout);
            CHECK(got.words == wanted.words);
            CHECK(got.runs == wanted.runs);
          }
        }
      });
    }
  }
}

TEST_CASE("a range without iterations touches nothing, and one outside of the space is refused") {
  const NestSpace space = spaces(parse_problem("ic4id5oc4kd3"), Direction::forward).front();
  Extents end = space.extent;
  end[static_cast<std::size_t>(Dim::c)] = 0;
  CHECK(footprint(space, {}, end, Operand::y, Layout::plain).words == 0);
  end[static_cast<std::size_t>(Dim::c)] = 5;
  CHECK_THROWS_WITH(footprint(space, {}, end, Operand::y, Layout::plain), Catch::Contains("'c' lie outside"));
}

TEST_CASE("fetches sum the footprints of all loads") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Case one(1000 + seed);
    const NestSpace& space = one.spaces.front();
    INFO(to_string(one.problem) << " transposed " << one.problem.transposed << ": " << to_string(one.nest));
    for (std::size_t depth = 0; depth <= one.nest.loops.size(); ++depth) {
      double tiles = 0;
      for_each_tile(one.nest, space, depth, [&](const Extents&, const Extents&) { ++tiles; });
      if (tiles > 400) break;
      for (const Operand operand : operands) {
        const Layout layout = (seed + depth) % 2 == 0 ? Layout::plain : Layout::blocked;
        INFO("depth " << depth << " " << name_of(operand) << " " << name_of(layout));
        const Fetch wanted = walked(one.nest, space, depth, operand, layout);
        const Fetch got = fetch(one.nest, space, depth, operand, layout);
        CHECK(got.words == wanted.words);
        CHECK(got.loads == wanted.loads);
        CHECK(got.runs == wanted.runs);
      }
    }
  }
}

TEST_CASE("a fetch is what a memory loads that keeps its footprint as long as it stays the same") {
  // Extents divide, and nothing is padded, so two neighbouring tiles have equal footprints only if no loop moved.
  const ConvProblem p = parse_problem("mb2ic8ih10iw10oc12oh8kh3");
  const auto all = spaces(p, Direction::forward);
  for (const char* text : {"n k y c x ky | kx c4 k6 x4", "y x n k c | ky kx c2 k4 y4 x2", "c k n | y x ky kx c4 k3",
                           "ky kx y c x | n k c4 x4"}) {
    const LoopNest nest = parse_nest(text);
    for (std::size_t depth = 0; depth <= nest.microkernel; ++depth) {
      for (const Operand operand : operands) {
        INFO(text << ", depth " << depth << " " << name_of(operand));
        std::set<index_t> held;
        double loads = 0, words = 0;
        for_each_tile(nest, all.front(), depth, [&](const Extents& begin, const Extents& end) {
          std::set<index_t> tile;
          test::for_each_iteration(
              all.front(),
              [&](const Extents& at) {
                if (const auto a = address_of(all.front(), at, operand, Layout::plain)) tile.insert(a->at);
              },
              begin, &end);
          if (tile == held) return;
          held = tile;
          loads += 1;
          words += static_cast<double>(tile.size());
        });
        const Fetch got = fetch(nest, all.front(), depth, operand, Layout::plain);
        CHECK(got.loads == loads);
        CHECK(got.words == words);
      }
    }
  }
}

TEST_CASE("buffers of paper 000 stand where loops reuse, with the sizes and rates of Table 2") {
  const ConvProblem p = parse_problem("ic128ih58iw58oc256oh56kh3");
  const NestSpace space = spaces(p, Direction::forward).front();
  const LoopNest nest = parse_blocking_string("FwFhX0(8)Y0(8)C0(16)K0(16)C1K1X1Y1");
  CHECK(to_string(nest) == "y x k c k16 c16 y8 x8 | ky kx");
  struct Wanted {
    Operand operand;
    std::size_t depth;
    index_t words;
    double loads, passes, exact, table2;
  };
  const double tiles = 7 * 7, x = 56 * 56 * 128, w = 9 * 128 * 256, y = 56 * 56 * 256;
  const double halo = 10.0 * 10 / 64;
  const std::vector<Wanted> wanted{
      // Inner K, outer K: input buffers of (Y + Fh - 1)(X + Fw - 1)C.
      {Operand::x, 4, 100 * 16, tiles * 16 * 8, 16, 100 * 16 * tiles * 16 * 8 * 16, x * 16 * halo * 16 * halo},
      {Operand::x, 2, 100 * 128, tiles, 16, 100 * 128 * tiles * 16, x * 16 * halo},
      // X and Y: kernel buffers of C K Fh Fw.
      {Operand::w, 6, 9, tiles * 16 * 8 * 16 * 16, 64, 9 * tiles * 16 * 8 * 16 * 16 * 64, w * 49 * 64},
      {Operand::w, 0, 9 * 128 * 256, 1, 49, w * 49, w * 49},
      // C: output buffers of Y X K, read and written. Loops over taps are the innermost output buffer.
      {Operand::y, 8, 1, y * 8 * 16, 9, 2 * y * 8 * 16 * 9 - y, y * 2 * 8 * 2 * 16 * 2 * 9},
      {Operand::y, 5, 64, tiles * 16 * 8 * 16, 16, 2 * y * 8 * 16 - y, y * 2 * 8 * 2 * 16},
      {Operand::y, 3, 64 * 16, tiles * 16, 8, 2 * y * 8 - y, y * 2 * 8},
  };
  const std::vector<Buffer> got = buffers(nest, space);
  REQUIRE(got.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    INFO(name_of(wanted[i].operand) << " " << wanted[i].depth);
    CHECK(got[i].operand == wanted[i].operand);
    CHECK(got[i].depth == wanted[i].depth);
    CHECK(got[i].words == wanted[i].words);
    CHECK(got[i].loads == wanted[i].loads);
    CHECK(got[i].passes == wanted[i].passes);
    CHECK(got[i].reads_exact == wanted[i].exact);
    CHECK(got[i].reads_table2 == Approx(wanted[i].table2));
  }
  // The next buffer inside loads the border of its window again each time: 10 x 10 voxels of 16 channels.
  CHECK(got[1].reads_plain == 100 * 16 * tiles * 16 * 8);
  // The microkernel has no window that shifts: 9 voxels for each of 64 results.
  CHECK(got[0].reads_plain == 9 * 64 * 16 * tiles * 16 * 8 * 16);
  CHECK(got[2].reads_plain == w * 56 * 56);
}

TEST_CASE("loops over taps around results keep the window in a buffer") {
  const NestSpace space = spaces(parse_problem("ic4ih10iw10oc4oh8kh3"), Direction::forward).front();
  const std::vector<Buffer> got = buffers(parse_nest("k c ky kx | y x"), space);
  REQUIRE(got.size() == 4);
  CHECK(got[0].operand == Operand::x);
  CHECK(got[0].depth == 2);
  CHECK(got[0].words == 100);
  CHECK(got[0].loads == 16);
  CHECK(got[0].passes == 9);
  CHECK(got[0].reads_exact == 16 * 9 * 64);
  CHECK(got[1].operand == Operand::x);
  CHECK(got[1].depth == 0);
  CHECK(got[1].words == 400);
  CHECK(got[2].operand == Operand::w);
  CHECK(got[2].words == 1);
  CHECK(got[3].operand == Operand::y);
  CHECK(got[3].depth == 1);
  CHECK(got[3].passes == 36);
}

TEST_CASE("buffers of random nests hold and read what enumeration finds") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Case one(2000 + seed);
    const NestSpace& space = one.spaces.front();
    const auto loops = bind(one.nest, space);
    INFO(to_string(one.problem) << " transposed " << one.problem.transposed << ": " << to_string(one.nest));
    for (const Buffer& buffer : buffers(one.nest, space)) {
      INFO(name_of(buffer.operand) << " buffer at " << buffer.depth);
      double tiles = 0;
      for_each_tile(one.nest, space, buffer.depth, [&](const Extents&, const Extents&) { ++tiles; });
      if (tiles > 300) continue;
      index_t words = 0;
      for_each_tile(one.nest, space, buffer.depth, [&](const Extents& begin, const Extents& end) {
        words = std::max(words, enumerated(space, begin, end, buffer.operand, Layout::plain).words);
      });
      CHECK(buffer.words == words);
      CHECK(buffer.loads == walked(one.nest, space, buffer.depth, buffer.operand, Layout::plain).loads);
      // The readers' tiles: as many loops inwards as make the passes.
      std::size_t inner = buffer.depth;
      for (double passes = 1; passes < buffer.passes; ++inner) passes *= static_cast<double>(loops[inner].trips());
      double reads = 0, first = 0;
      for_each_tile(one.nest, space, inner, [&](const Extents& begin, const Extents& end) {
        reads += static_cast<double>(enumerated(space, begin, end, buffer.operand, Layout::plain).words);
      });
      for_each_tile(one.nest, space, 0, [&](const Extents& begin, const Extents& end) {
        first += static_cast<double>(enumerated(space, begin, end, buffer.operand, Layout::plain).words);
      });
      CHECK(buffer.reads_exact == (buffer.operand == space.written ? 2 * reads - first : reads));
    }
  }
}
