// Tiles of double-buffered transfers: the equations of paper 001, the search, and exact counts.
#include "convolume/transfer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include <catch2/catch.hpp>

#include "convolume/error.hpp"

using namespace convolume;
using namespace convolume::plan;

namespace {

constexpr TransferPrice round_prices{.start = 100, .jump = 10, .element = 1};

TransferProblem transfers(const char* text, index_t capacity_bytes = 4096, const char* order = "zyxck") {
  return {.problem = parse_problem(text), .price = round_prices, .capacity_bytes = capacity_bytes, .order = order};
}

void check_transfer(const TransferCost& transfer, double calls, double jumps, double words) {
  CHECK(transfer.calls == calls);
  CHECK(transfer.jumps == jumps);
  CHECK(transfer.words == words);
  CHECK(transfer.cost == 100 * calls + 10 * jumps + words);
}

std::vector<TransferPlan> flownet_s_plans() {
  std::vector<TransferPlan> plans;
  for (const NamedProblem& layer : flownet_s_layers()) plans.push_back(plan_transfers({.problem = layer.problem}));
  return plans;
}

std::vector<index_t> divisors(index_t n) {
  std::vector<index_t> all;
  for (index_t i = 1; i <= n; ++i) {
    if (n % i == 0) all.push_back(i);
  }
  return all;
}

/// Returns the costs of all tiles that fit.
std::vector<TileCost> all_tiles(const TransferProblem& p) {
  const Extent3 y = p.problem.output();
  std::vector<TileCost> all;
  for (const index_t k : divisors(p.problem.out_channels / p.problem.groups)) {
    for (const index_t c : divisors(p.problem.in_channels / p.problem.groups)) {
      for (const index_t tx : divisors(y.x)) {
        for (const index_t ty : divisors(y.y)) {
          for (const index_t tz : divisors(y.z)) {
            all.push_back(tile_cost(p, {.z = tz, .y = ty, .x = tx, .c = c, .k = k}));
            if (!all.back().feasible) all.pop_back();
          }
        }
      }
    }
  }
  return all;
}

/// Walks over the tiles of a nest and transfers each footprint that differs from the one before.
std::array<TransferCost, operands.size()> walk(const LoopNest& nest, const NestSpace& space) {
  std::array<TransferCost, operands.size()> all{};
  std::map<Operand, std::vector<index_t>> held;
  std::set<std::vector<index_t>> written;
  const auto key = [](Operand operand, const Extents& begin, const Extents& end) {
    std::vector<index_t> key;
    for (const Dim dim : all_dims) {
      const bool moves = operand == Operand::x   ? dim != Dim::k && dim < Dim::kz
                         : operand == Operand::w ? dim == Dim::k || dim == Dim::c
                                                 : dim != Dim::c && dim < Dim::kz;
      if (!moves) continue;
      key.push_back(begin[static_cast<std::size_t>(dim)]);
      key.push_back(end[static_cast<std::size_t>(dim)]);
    }
    return key;
  };
  for_each_tile(nest, space, nest.microkernel, [&](const Extents& begin, const Extents& end) {
    for (const Operand operand : operands) {
      std::vector<index_t> tile = key(operand, begin, end);
      if (held[operand] == tile) continue;
      held[operand] = tile;
      const Footprint moved = footprint(space, begin, end, operand, Layout::plain);
      const int times = operand != Operand::y || written.insert(tile).second ? 1 : 2;
      TransferCost& transfer = all[static_cast<std::size_t>(operand)];
      transfer.calls += times;
      transfer.jumps += static_cast<double>(times * moved.runs);
      transfer.words += static_cast<double>(times * moved.words);
    }
  });
  return all;
}

}  // namespace

TEST_CASE("equation 1: a transfer costs its start, its jumps and its words") {
  CHECK(round_prices.of(1, 3, 50) == 100 + 30 + 50);
  CHECK(round_prices.of(2, 0, 0) == 200);
}

TEST_CASE("equations 2 to 6 of a planar layer with a stride, by hand") {
  // ROWin = COLin = 8, Nin = 4, Nout = 6, Ks = 3, str = 2; sigma_s = 4, sigma_t = 8, sigma_k = 2, sigma_z = 3.
  const TransferProblem problem = transfers("ic4ih8oc6kh3sh2ph1", 4096, "yxck");
  const TileCost cost = tile_cost(problem, {.y = 2, .x = 4, .c = 2, .k = 3});
  const double d_in = 8 * 8 * 4 / (4 * 8 * 2), d_out = 8 * 8 * 4 * 6 / (4 * 8 * 2 * 3);
  check_transfer(cost.of(Operand::x), d_in, d_in * 4 * 2, d_in * 4 * 8 * 2);
  check_transfer(cost.of(Operand::w), d_out, d_out * (3 + 1), d_out * (2 * 3 * 9 + 3));
  check_transfer(cost.of(Operand::y), 2 * d_out, 2 * d_out * 4 * 3 / 2, 2 * d_out * 4 * 8 * 3 / 4);
  const double t_in = 100 + 80 + 64, t_out = 2 * (100 + 60 + 24), t_wb = 100 + 40 + 57;
  CHECK(cost.total == 4 * (t_in + 6.0 / 3 * (t_out + t_wb)));
}

TEST_CASE("the constraint counts x, y, w and biases of a tile in half of the memory") {
  TransferProblem problem = transfers("ic4ih8oc6kh3sh2ph1", 2 * 4 * 201);
  const TransferTile tile{.y = 2, .x = 4, .c = 2, .k = 3};
  CHECK(tile_cost(problem, tile).held_words == (4 + 2) * (8 + 2) * 2 + 2 * 4 * 3 + 2 * 3 * 9 + 3);
  CHECK(tile_cost(problem, tile).usage == 1);
  CHECK(tile_cost(problem, tile).feasible);
  problem.capacity_bytes -= 8;
  CHECK_FALSE(tile_cost(problem, tile).feasible);
  problem.footprint = TransferFootprint::paper;
  CHECK(tile_cost(problem, tile).held_words == 4 * 8 * 2 + 2 * 4 * 3 + 2 * 3 * 9 + 3);
  CHECK(tile_cost(problem, tile).feasible);
  problem.element_bytes = 8;
  CHECK_FALSE(tile_cost(problem, tile).feasible);
}

TEST_CASE("a layer with depth has rows in every plane and taps in every plane of the kernel") {
  const TileCost cost = tile_cost(transfers("mb2ic4id8oc6kd3pd1"), {.z = 2, .y = 4, .x = 8, .c = 2, .k = 3});
  const double d_in = 2 * (8 / 2) * (8 / 4) * (4 / 2), d_out = d_in * (6 / 3);
  check_transfer(cost.of(Operand::x), d_in, d_in * 2 * 4 * 2, d_in * 2 * 4 * 8 * 2);
  check_transfer(cost.of(Operand::w), d_out, d_out * 4, d_out * (2 * 3 * 27 + 3));
  check_transfer(cost.of(Operand::y), 2 * d_out, 2 * d_out * 2 * 4 * 3, 2 * d_out * 2 * 4 * 8 * 3);
  CHECK(cost.held_words == (2 + 2) * (4 + 2) * (8 + 2) * 2 + 2 * 4 * 8 * 3 + 2 * 3 * 27 + 3);
}

TEST_CASE("one plane costs what the planar layer costs, and a plane of the batch as much as a plane of the volume") {
  const TransferTile tile{.y = 4, .x = 8, .c = 2, .k = 3};
  const TileCost planar = tile_cost(transfers("ic4ih8oc6kh3ph1", 4096, "yxck"), tile);
  const TileCost volume = tile_cost(transfers("ic4id5ih8iw8oc6kd1kh3kw3ph1pw1"), tile);
  const TileCost batch = tile_cost(transfers("mb5ic4ih8oc6kh3ph1"), tile);
  CHECK(volume.total == 5 * planar.total);
  CHECK(batch.total == volume.total);
}

TEST_CASE("the order of the loops decides which operand stays") {
  const char* problem = "ic4ih8oc6kh3ph1";
  const TransferTile tile{.y = 2, .x = 4, .c = 2, .k = 3};  // trips: y 4, x 2, c 2, k 2
  const auto calls = [&](const char* order) {
    const TileCost cost = tile_cost(transfers(problem, 4096, order), tile);
    return std::array{cost.of(Operand::x).calls, cost.of(Operand::w).calls, cost.of(Operand::y).calls};
  };
  CHECK(calls("yxck") == std::array{16.0, 32.0, 64.0});
  CHECK(calls("kcyx") == std::array{32.0, 4.0, 64.0});
  CHECK(calls("yxkc") == std::array{32.0, 32.0, 32.0});
}

TEST_CASE("exact counts are those of a walk over the tiles") {
  for (const char* problem : {"mb2ic4ih8oc6kh3ph1", "ic6id6ih4iw10oc4kd3pd1", "ic4ih8oc6kh5sh2ph2", "g2ic4ih8oc4kh3"}) {
    for (const char* order : {"zyxck", "kczyx", "yckxz"}) {
      const TransferProblem p = transfers(problem, 1 << 20, order);
      for (const TileCost& cost : all_tiles(p)) {
        const LoopNest nest = transfer_nest(p, cost.tile);
        const NestSpace space = spaces(p.problem, Direction::forward).front();
        const auto walked = walk(nest, space);
        const TileCost exact = exact_cost(p, cost.tile);
        INFO(problem << " " << order << " " << to_string(cost.tile));
        for (const Operand operand : operands) {
          const auto groups = static_cast<double>(p.problem.groups);
          const TransferCost& one = walked[static_cast<std::size_t>(operand)];
          REQUIRE(exact.of(operand).calls == groups * one.calls);
          REQUIRE(exact.of(operand).jumps == groups * one.jumps);
          REQUIRE(exact.of(operand).words == groups * one.words);
        }
      }
    }
  }
}

TEST_CASE("equations and exact counts agree where neither halo, border, first reads nor biases matter") {
  const TransferProblem p = transfers("ic4ih8oc6kh1");
  const TransferTile tile{.y = 2, .x = 4, .c = 2, .k = 3};
  const TileCost by_equations = tile_cost(p, tile), exact = exact_cost(p, tile);
  CHECK(exact.of(Operand::x).words == by_equations.of(Operand::x).words);
  CHECK(exact.of(Operand::x).jumps == by_equations.of(Operand::x).jumps);
  CHECK(exact.of(Operand::w).words == by_equations.of(Operand::w).words - 3 * 32);
  CHECK(exact.of(Operand::y).words == by_equations.of(Operand::y).words - 8 * 8 * 6);
  CHECK(exact.total < by_equations.total);
  // A halo of one voxel on each side that is clipped at the border: rows of 4 + 1, and 2 + 1, 4, 4, 2 + 1 rows.
  const TileCost halo = exact_cost(transfers("ic4ih8oc6kh3ph1"), tile);
  CHECK(halo.of(Operand::x).words == 4 * (2 * 5) * (3 + 4 + 4 + 3));
}

TEST_CASE("the search finds what brute force finds") {
  const std::array prices{round_prices, TransferPrice{.start = 1, .jump = 1, .element = 1},
                          TransferPrice{.start = 1e-7, .jump = 2e-8, .element = 3e-10}};
  for (const char* problem : {"ic6ih12iw16oc8kh3ph1", "ic4id6ih8iw12oc6kd3pd1", "g2ic8ih12oc12kh5sh2ph2"}) {
    for (const TransferFootprint footprint : {TransferFootprint::halo, TransferFootprint::paper}) {
      for (const TransferPrice& price : prices) {
        TransferProblem p = transfers(problem, 8000);
        p.footprint = footprint;
        p.price = price;
        std::vector<TileCost> all = all_tiles(p);
        const TransferPlan plan = plan_transfers(p);
        REQUIRE(plan.feasible_tiles == static_cast<double>(all.size()));
        const auto by_total = [](const TileCost& a, const TileCost& b) { return a.total < b.total; };
        const auto by_usage = [](const TileCost& a, const TileCost& b) { return a.usage < b.usage; };
        CHECK(plan.best.total == std::min_element(all.begin(), all.end(), by_total)->total);
        CHECK(plan.fullest.usage == std::max_element(all.begin(), all.end(), by_usage)->usage);
        std::erase_if(all, [](const TileCost& cost) { return cost.usage < 0.8; });
        std::sort(all.begin(), all.end(), by_total);
        REQUIRE(plan.naive_tiles == static_cast<double>(all.size()));
        REQUIRE(plan.naive);
        CHECK(plan.naive->usage >= 0.8);
        CHECK(plan.naive->total == all[(all.size() - 1) / 2].total);
        CHECK(plan.ratio() == plan.naive->total / plan.best.total);
      }
    }
  }
}

TEST_CASE("the search by exact counts finds what brute force finds") {
  for (const char* problem : {"ic4ih12oc6kh3ph1", "mb2ic4id6ih4iw6oc4kd3pd1"}) {
    TransferProblem p = transfers(problem, 4000);
    p.counts = TransferCounts::exact;
    std::vector<TileCost> all;
    for (const TileCost& cost : all_tiles(p)) all.push_back(exact_cost(p, cost.tile));
    const auto by_total = [](const TileCost& a, const TileCost& b) { return a.total < b.total; };
    const TransferPlan plan = plan_transfers(p);
    CHECK(plan.best.total == std::min_element(all.begin(), all.end(), by_total)->total);
    p.counts = TransferCounts::equations;
    CHECK(plan.best.total <= exact_cost(p, plan_transfers(p).best.tile).total);
    std::erase_if(all, [](const TileCost& cost) { return cost.usage < 0.8; });
    std::sort(all.begin(), all.end(), by_total);
    REQUIRE(plan.naive);
    CHECK(plan.naive->total == all[(all.size() - 1) / 2].total);
  }
}

TEST_CASE("of equal tiles the best is the one that holds least, and the fullest is the cheapest") {
  // Tiles of 8 voxels have equally many calls. With their halo, y1 x8 takes 48 words, y2 x4 and y4 x2 take 42.
  TransferProblem p = transfers("ic1ih8oc1kh3ph1", 2 * 4 * 50);
  p.price = {.start = 1, .jump = 1e-30, .element = 1e-30};
  CHECK(plan_transfers(p).best.tile == TransferTile{.y = 2, .x = 4});
  p.price = {.start = 1, .jump = 1, .element = 1};
  p.capacity_bytes = 2 * 4 * 43;
  CHECK(plan_transfers(p).fullest.tile == TransferTile{.y = 2, .x = 4});
}

TEST_CASE("a convolution that fits is one tile, and no naive tile fills the memory") {
  const TransferPlan plan = plan_transfers(transfers("ic4ih8oc6kh3ph1", 1 << 20));
  CHECK(plan.best.tile == TransferTile{.y = 8, .x = 8, .c = 4, .k = 6});
  CHECK_FALSE(plan.naive);
  CHECK(plan.ratio() == 0);
}

TEST_CASE("FlowNet-S has the parameters and the maps of section 2.2") {
  double parameters = 0;
  for (const auto& [name, problem] : flownet_s_layers()) {
    parameters += static_cast<double>(problem.w_shape().elements() + problem.out_channels);
  }
  CHECK(parameters == 24050752);
}

TEST_CASE("the best tiles of FlowNet-S fill the memory as Table 1 says, within 3 points on average") {
  constexpr std::array table_1{88, 98, 98, 86, 85, 88, 76, 86, 90, 91};
  constexpr std::array ours{93, 98, 98, 91, 89, 91, 84, 87, 90, 90};  // the reference of this test, not of the paper
  const auto plans = flownet_s_plans();
  REQUIRE(plans.size() == table_1.size());
  double deviation = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    CHECK(std::round(100 * plans[i].best.usage) == ours[i]);
    deviation += std::abs(100 * plans[i].best.usage - table_1[i]) / static_cast<double>(plans.size());
  }
  CHECK(deviation <= 3);
}

TEST_CASE("naive tiles of FlowNet-S cost 4 to 7 times as much as the best, and the fullest 1.5 times in every layer") {
  double naive = 0, best = 0;
  for (const TransferPlan& plan : flownet_s_plans()) {
    REQUIRE(plan.naive);
    naive += plan.naive->total;
    best += plan.best.total;
    CHECK(plan.fullest.total > 1.5 * plan.best.total);
    CHECK(plan.fullest.usage >= plan.best.usage);
  }
  CHECK(naive / best > 4);
  CHECK(naive / best < 7);
}

TEST_CASE("a capacity below the smallest tile is refused with the least value, which is accepted") {
  TransferProblem p = transfers("ic4ih8oc6kh3sh2ph1", 100);
  const index_t least = 2 * 4 * ((2 + 2) * (2 + 2) + 1 + 9 + 1);
  CHECK(least_capacity(p) == least);
  CHECK_THROWS_WITH(plan_transfers(p), Catch::Contains("capacity_bytes = 100") && Catch::Contains("at least 216"));
  p.capacity_bytes = least - 1;
  CHECK_THROWS_AS(plan_transfers(p), InvalidArgument);
  p.capacity_bytes = least;
  CHECK(plan_transfers(p).feasible_tiles == 1);
}

TEST_CASE("prices that are not positive numbers are refused by name") {
  const double bad =
      GENERATE(0.0, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN());
  TransferProblem p = transfers("ic4ih8oc6kh3ph1");
  p.price = {.start = bad, .jump = 1, .element = 1};
  CHECK_THROWS_WITH(plan_transfers(p), Catch::Contains("start (C)"));
  p.price = {.start = 1, .jump = bad, .element = 1};
  CHECK_THROWS_WITH(plan_transfers(p), Catch::Contains("jump (p)"));
  p.price = {.start = 1, .jump = 1, .element = bad};
  CHECK_THROWS_WITH(plan_transfers(p), Catch::Contains("element (t)"));
}

TEST_CASE("orders and tiles that do not cover the convolution are refused") {
  const auto refused = [](const char* order, const char* says) {
    CHECK_THROWS_WITH(plan_transfers(transfers("ic4id4oc6kd3pd1", 4096, order)), Catch::Contains(says));
  };
  refused("yxck", "4 iterations of 'z'");
  refused("zyxckk", "'k' stands twice");
  refused("zyxcn", "'n' is no loop");
  refused("", "no loop covers");
  CHECK_THROWS_WITH(tile_cost(transfers("ic4ih8oc6kh3ph1"), {.y = 3}), Catch::Contains("3 does not divide the 8"));
  CHECK_THROWS_AS(tile_cost(transfers("ic4ih8oc6kh3ph1"), {.c = 0}), InvalidArgument);
  CHECK_THROWS_AS(exact_cost(transfers("ic4ih8oc6kh3ph1"), {.k = 12}), InvalidArgument);
  TransferProblem transposed = transfers("ic4ih8oc6kh3ph1");
  transposed.problem.transposed = true;
  CHECK_THROWS_AS(plan_transfers(transposed), Unsupported);
  TransferProblem element = transfers("ic4ih8oc6kh3ph1");
  element.element_bytes = 0;
  CHECK_THROWS_WITH(plan_transfers(element), Catch::Contains("element_bytes = 0"));
}

TEST_CASE("depthwise convolutions have equations but no nests") {
  const TransferProblem p = transfers("g8ic8ih8oc8kh3ph1");
  const TileCost cost = plan_transfers(p).best;
  CHECK(cost.of(Operand::x).calls == 8 * 64.0 / static_cast<double>(cost.tile.y * cost.tile.x));
  CHECK_THROWS_AS(exact_cost(p, cost.tile), Unsupported);
}
