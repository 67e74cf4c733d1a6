// Dependences against all pairs of iterations, packing and costs by hand.
#include "convolume/reuse.hpp"

#include <algorithm>
#include <set>

#include "testing/random_nest.hpp"
#include "testing/random_problem.hpp"
#include <catch2/catch.hpp>

#include "convolume/error.hpp"
#include "tests/plan/reuse_oracle.hpp"

using namespace convolume;
using namespace convolume::plan;

namespace {

void check_words(const Words& got, const Words& wanted) {
  CHECK(got.x == wanted.x);
  CHECK(got.w == wanted.w);
  CHECK(got.y == wanted.y);
}

/// Returns the dependence of an operand that a loop carries.
const Dependence& carried(const std::vector<Dependence>& all, Operand operand, std::size_t loop) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Dependence& one) { return one.operand == operand && one.loop == loop; });
  REQUIRE(found != all.end());
  return *found;
}

ReuseLevels two_caches() {
  return {.caches = {{.bytes = 100, .latency = 1, .bandwidth = 10}, {.bytes = 250, .latency = 4, .bandwidth = 8}},
          .memory = {.latency = 100, .bandwidth = 5}};
}

}  // namespace

TEST_CASE("a matrix product has the three dependences of paper 004, figure 4") {
  // C[i][j] += A[i][k] B[k][j]: i is the batch, j an output channel, k an input channel.
  const index_t M = 5, N = 7, K = 11;
  const ConvProblem p{.batch = M, .in_channels = K, .out_channels = N, .input = {1, 1, 1}, .kernel = {1, 1, 1}};
  const NestSpace space = spaces(p, Direction::forward).front();
  const auto all = dependences(parse_nest("n k | c"), space);
  REQUIRE(all.size() == 3);
  const Dependence &d1 = carried(all, Operand::y, 2), &d2 = carried(all, Operand::x, 1),
                   &d3 = carried(all, Operand::w, 0);
  CHECK(d1.source == std::vector<index_t>{0, 0, 0});
  CHECK(d1.last_target == std::vector<index_t>{0, 0, K - 1});
  CHECK(d1.first.all() == 5);
  CHECK(d1.last.all() == 2 * K + 1);
  CHECK(d2.first_target == std::vector<index_t>{0, 1, 0});
  CHECK(d2.last_target == std::vector<index_t>{0, N - 1, 0});
  CHECK(d2.first.all() == 2 * K + 3);
  CHECK(d2.last.all() == N * K + N + 1);
  CHECK(d3.first.all() == K + 1 + N * K + N + 1);
  CHECK(d3.last.all() == (M - 1) * K + 1 + N * K + (M - 1) * N + 1);
  CHECK_FALSE(d3.single());
}

TEST_CASE("dependences are those that comparing all pairs of iterations finds") {
  std::size_t found = 0, windowed = 0, single = 0, grouped = 0, strided = 0, padded = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    // Few channels leave iterations for wide windows.
    const auto [p, all] = test::nest_case({.stream = 6,
                                           .most_channels = seed % 2 == 0 ? 12 : 2,
                                           .most_voxels = seed % 2 == 0 ? 6 : 12,
                                           .most_kernel = seed % 2 == 0 ? 4 : 6,
                                           .most_flops = 4e3},
                                          seed);
    const LoopNest nest = test::random_nest(all, seed);
    const NestSpace& space = all[seed % all.size()];
    INFO(to_string(p) << " transposed " << p.transposed << ": " << to_string(nest));
    const auto wanted = test::enumerated_dependences(nest, space);
    const auto got = dependences(nest, space);
    CHECK(got.size() == wanted.size());
    for (const Dependence& one : got) {
      INFO(name_of(one.operand) << " carried by loop " << one.loop);
      const auto same = wanted.find({one.operand, one.loop});
      REQUIRE(same != wanted.end());
      CHECK(one.source == same->second.source);
      CHECK(one.first_target == *same->second.targets.begin());
      CHECK(one.last_target == *same->second.targets.rbegin());
      CHECK(one.single() == (same->second.targets.size() == 1));
      check_words(one.first, test::enumerated_words(nest, space, one.source, one.first_target));
      check_words(one.last, test::enumerated_words(nest, space, one.source, one.last_target));
      windowed += one.operand == space.windowed && nest.loops[one.loop].dim >= Dim::z ? 1 : 0;
      single += one.single() ? 1 : 0;
    }
    found += got.size();
    grouped += p.groups > 1 ? 1 : 0;
    strided += p.stride != Extent3{1, 1, 1} ? 1 : 0;
    padded += p.pad_before != Extent3{0, 0, 0} ? 1 : 0;
  }
  CAPTURE(found, windowed, single, grouped, strided, padded);
  CHECK(found > 1000);
  CHECK(windowed > 80);
  CHECK(single > 100);
  CHECK(std::min({grouped, strided, padded}) > 12);
}

TEST_CASE("the first source of a strided window is behind the padding") {
  // Voxel = 2 y + ky - 1. Rows y = 0 and y = 1 share voxel 1, which taps 2 and 0 read. Tap 0 of row 0 reads padding.
  const NestSpace space = spaces(parse_problem("mb1ic1ih8oc1oh4kh3sh2ph1iw1ow1kw1sw1pw0"), Direction::forward).front();
  const auto all = dependences(parse_nest("y | ky"), space);
  const Dependence& x = carried(all, Operand::x, 0);
  CHECK(x.source == std::vector<index_t>{0, 2});
  CHECK(x.first_target == std::vector<index_t>{1, 0});
  CHECK(x.single());
  CHECK(x.first.all() == 1 + 2 + 2);
}

TEST_CASE("working sets are packed into the first cache that has room, the smallest first") {
  const std::vector<double> sets{300, 60, 40, 90, 200, 60}, caches{100, 250};
  const PackedSets packed = pack(sets, caches);
  // 40 and 60 fill the first cache, another 60 and 90 go into the second one, 200 and 300 into memory.
  CHECK(packed.places == std::vector<std::size_t>{2, 0, 0, 1, 2, 1});
  CHECK(packed.cache_bytes == std::vector<double>{100, 150});
  CHECK(packed.memory_bytes == 500);
  CHECK(reuse_cost(packed, two_caches()) == Approx(100 * 1 / 10. + 150 * 4 / 8. + 500 * 100 / 5.));
  CHECK(pack(sets, {}).memory_bytes == 750);
}

TEST_CASE("the cost of a nest counts two working sets per dependence, or one if there is one target") {
  const auto all = spaces(parse_problem("mb1ic1ih8oc1oh4kh3sh2ph1iw1ow1kw1sw1pw0"), Direction::forward);
  const auto found = dependences(parse_nest("y | ky"), all.front());
  const auto sets = working_set_bytes(found, 4);
  std::size_t wanted = 0;
  for (const Dependence& one : found) wanted += one.single() ? 1 : 2;
  CHECK(sets.size() == wanted);
  CHECK(std::count(sets.begin(), sets.end(), 20) == 1);
  const std::vector<double> caches{100, 250};
  const double cost = reuse_cost(pack(sets, caches), two_caches());
  CHECK(reuse_cost(parse_nest("y | ky"), all, 4, two_caches()) == cost);
  // Phases of a stride are counted one after the other.
  const ConvProblem strided = parse_problem("mb1ic4ih8oc4kh3sh2ph1");
  const auto phases = spaces(strided, Direction::backward_data);
  REQUIRE(phases.size() == 4);
  const LoopNest nest = parse_nest("n c y x | k ky kx");
  double sum = 0;
  for (const NestSpace& phase : phases) {
    sum += reuse_cost(pack(working_set_bytes(dependences(nest, phase), 4), caches), two_caches());
  }
  CHECK(reuse_cost(nest, phases, 4, two_caches()) == sum);
}

TEST_CASE("equation 1 tells orders apart, and finds taps inside of rows cheaper than taps outside of channels") {
  const auto all = spaces(parse_problem("ic64ih28oc64oh28kh3ph1"), Direction::forward);
  const ReuseLevels levels{.caches = {{.bytes = 32 << 10, .latency = 1, .bandwidth = 200},
                                      {.bytes = 1 << 20, .latency = 4, .bandwidth = 100},
                                      {.bytes = 8 << 20, .latency = 20, .bandwidth = 30}},
                           .memory = {.latency = 100, .bandwidth = 10}};
  levels.validate();
  const auto cost = [&](const char* order) {
    return reuse_cost(parse_nest(std::string(order) + " x | c16 x14 k32"), all, 4, levels);
  };
  CHECK(cost("k y c ky kx") < cost("ky kx c y k"));
  std::vector<std::string> dims{"c", "k", "kx", "ky", "y"};
  std::set<double> costs;
  do {
    std::string order;
    for (const std::string& dim : dims) order += dim + " ";
    costs.insert(cost(order.c_str()));
  } while (std::next_permutation(dims.begin(), dims.end()));
  CHECK(costs.size() > 100);
}

TEST_CASE("the levels of a machine grow, and the L3 is a fixed share") {
  MachineModel machine = machine_model();
  machine.l1_bytes = 32 << 10;
  machine.usable_l2_bytes = 1 << 20;
  machine.usable_l3_bytes = 32 << 20;
  ReuseLevels levels = reuse_levels(machine);
  REQUIRE(levels.caches.size() == 3);
  CHECK(levels.caches[2].bytes == 8 << 20);
  CHECK(levels.memory.latency == machine.latency_ns[3]);
  CHECK(levels.memory.bandwidth == machine.dram_gb_per_s);
  machine.cores *= 2;
  CHECK(reuse_levels(machine).caches[2].bytes == 8 << 20);
  machine.usable_l3_bytes = 2 << 20;  // its share is smaller than the L2
  CHECK(reuse_levels(machine).caches.size() == 2);
}

TEST_CASE("levels without sizes or prices are refused") {
  const auto refused = [](auto change, const char* says) {
    ReuseLevels levels = two_caches();
    change(levels);
    CHECK_THROWS_WITH(levels.validate(), Catch::Contains(says));
  };
  two_caches().validate();
  refused([](ReuseLevels& l) { l.caches[1].bytes = 100; }, "caches that grow");
  refused([](ReuseLevels& l) { l.caches[0].bytes = 0; }, "size of cache 1 = 0");
  refused([](ReuseLevels& l) { l.caches[1].latency = -1; }, "latency of cache 2 = -1");
  refused([](ReuseLevels& l) { l.memory.bandwidth = 0; }, "bandwidth of memory = 0");
  CHECK_THROWS_WITH(reuse_cost(pack(std::vector<double>{1}, {}), two_caches()), Catch::Contains("use the same caches"));
}
