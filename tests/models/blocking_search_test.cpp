// Searches for the nest of the least energy, against brute force.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <catch2/catch.hpp>

#include "convolume/energy.hpp"
#include "convolume/error.hpp"
#include "models/energy_model.hpp"

using namespace convolume;
using namespace convolume::plan;

namespace {

/// Keeps the least energies, no two the same.
void keep(std::vector<double>& least, double pj, std::size_t count) {
  if (least.size() == count && pj >= least.back()) return;
  for (const double other : least) {
    if (std::abs(other - pj) <= 1e-9 * pj) return;
  }
  least.insert(std::upper_bound(least.begin(), least.end(), pj), pj);
  if (least.size() > count) least.pop_back();
}

/// Returns the least energies of all orders of loops and all sizes.
std::vector<double> brute_force(const EnergyModel& model, int levels, std::size_t count) {
  BlockLoops loops;
  for (const Dim dim : all_dims) {
    if (model.counts().sizes(dim).size() == 1) continue;
    for (int level = 0; level < (dim >= Dim::kz ? 1 : levels); ++level) loops.push_back({dim, 0});
  }
  const auto by_dim = [](const BlockLoop& a, const BlockLoop& b) { return a.dim < b.dim; };
  std::sort(loops.begin(), loops.end(), by_dim);
  std::vector<double> least;
  const std::function<void(std::size_t, std::array<index_t, all_dims.size()>&)> size =
      [&](std::size_t i, std::array<index_t, all_dims.size()>& inside) {
        if (i == loops.size()) {
          keep(least, model.memory_pj(loops), count);
          return;
        }
        const Dim dim = loops[i].dim;
        const auto d = static_cast<std::size_t>(dim);
        const bool last = std::none_of(loops.begin() + static_cast<std::ptrdiff_t>(i) + 1, loops.end(),
                                       [&](const BlockLoop& loop) { return loop.dim == dim; });
        const index_t before = inside[d];
        for (const index_t extent : model.counts().sizes(dim)) {
          if (extent % before != 0 || (last && extent != model.counts().sizes(dim).back())) continue;
          loops[i].extent = inside[d] = extent;
          size(i + 1, inside);
        }
        inside[d] = before;
      };
  do {
    std::array<index_t, all_dims.size()> inside{};
    inside.fill(1);
    size(0, inside);
  } while (std::next_permutation(loops.begin(), loops.end(), by_dim));
  return least;
}

EnergyLayer small_layer(const char* problem = "ic4ih6iw4oc4kh3kw1", Datapath datapath = {.c = 2, .k = 2}) {
  return energy_layer(parse_problem(problem), datapath);
}

double least_of(const SearchResult& result) { return result.best.front().memory_pj(); }

}  // namespace

TEST_CASE("branch and bound finds what brute force finds") {
  const Hierarchy tiny{.name = "tiny",
                       .levels = {{.name = "L1", .bytes = 40}, {.name = "L2", .bytes = 120}, {.name = "DRAM"}}};
  const Hierarchy separate{.name = "separate",
                           .levels = {{.name = "IB", .bytes = 24, .operands = "x"},
                                      {.name = "KB", .bytes = 48, .operands = "w"},
                                      {.name = "OB", .bytes = 24, .operands = "y"},
                                      {.name = "DRAM"}}};
  struct Case {
    EnergyLayer layer;
    Hierarchy hierarchy;
    EnergyOptions options;
  };
  std::vector<Case> cases;
  for (const char* problem : {"ic4ih4iw4oc4kh1kw3", "mb4ic4ih1iw1oc8kh1"}) {
    for (const bool latches : {true, false}) {
      for (const Hierarchy& hierarchy : {named_hierarchy("free"), tiny, separate}) {
        cases.push_back({small_layer(problem), hierarchy, {.free_latches = latches}});
      }
      for (const double limit : {300.0, 100.0, 40.0}) {
        cases.push_back(
            {small_layer(problem), named_hierarchy("free"), {.free_latches = latches, .limit_bytes = limit}});
      }
    }
  }
  for (const Case& c : cases) {
    for (const int levels : {1, 2}) {
      CAPTURE(c.layer.name, c.hierarchy.name, c.options.limit_bytes, c.options.free_latches, levels);
      constexpr int top = 4;
      const SearchResult found = search_exhaustive(c.layer, c.hierarchy, c.options, {.levels = levels, .top = top});
      const std::vector<double> all = brute_force(EnergyModel(c.layer, c.hierarchy, c.options), levels, top);
      const double least = all.front();
      REQUIRE(found.best.size() == all.size());
      for (std::size_t i = 0; i < all.size(); ++i) CHECK(found.best[i].memory_pj() == Approx(all[i]).epsilon(1e-6));
      CHECK(found.proven);
      CHECK(least_of(found) == Approx(least).epsilon(1e-6));
      CHECK(found.bound_pj <= least * (1 + 1e-6));
    }
  }
}

TEST_CASE("an axis Z and taps along it are searched as the others are") {
  const EnergyLayer layer = small_layer("ic2id4ih1iw4oc2kd3kh1kw2", {.c = 1, .k = 1});
  const SearchResult found = search_exhaustive(layer, named_hierarchy("free"), {}, {.levels = 1});
  CHECK(least_of(found) ==
        Approx(brute_force(EnergyModel(layer, named_hierarchy("free"), {}), 1, 1).front()).epsilon(1e-6));
}

TEST_CASE("more levels never need more energy") {
  const EnergyLayer layer = table4_layer("conv5");
  double before = std::numeric_limits<double>::infinity();
  for (const int levels : {1, 2, 3}) {
    const double pj = least_of(search_exhaustive(layer, named_hierarchy("free"), {}, {.levels = levels}));
    CHECK(pj <= before * (1 + 1e-6));
    before = pj;
  }
}

TEST_CASE("the iterative search comes within 8 % of the exhaustive one") {
  for (const char* name : {"conv3", "conv4", "conv5"}) {
    for (const int levels : {2, 3}) {
      const EnergyLayer layer = table4_layer(name);
      const double exact = least_of(search_exhaustive(layer, named_hierarchy("free"), {}, {.levels = levels}));
      const double iterative =
          least_of(search_iterative(layer, named_hierarchy("free"), {}, {.levels = levels, .seeds = 32}));
      CAPTURE(name, levels, iterative / exact);
      CHECK(iterative >= exact * (1 - 1e-6));
      CHECK(iterative <= 1.08 * exact);
    }
  }
}

TEST_CASE("the same seed gives the same nests") {
  const EnergyLayer layer = table4_layer("conv4");
  const SearchOptions options{.levels = 3, .top = 5, .seeds = 8, .seed = 7};
  const SearchResult a = search_iterative(layer, named_hierarchy("x86"), {}, options);
  const SearchResult b = search_iterative(layer, named_hierarchy("x86"), {}, options);
  REQUIRE(a.best.size() == b.best.size());
  CHECK(a.tried == b.tried);
  for (std::size_t i = 0; i < a.best.size(); ++i) CHECK(a.best[i].nest == b.best[i].nest);
}

TEST_CASE("results are sorted and differ") {
  const EnergyLayer layer = table4_layer("conv5");
  for (const double limit : {0.0, 65536.0}) {
    const EnergyOptions options{.limit_bytes = limit};
    const SearchResult found = search_exhaustive(layer, named_hierarchy("free"), options, {.levels = 2, .top = 10});
    REQUIRE(found.best.size() == 10);
    for (std::size_t i = 1; i < 10; ++i) CHECK(found.best[i - 1].memory_pj() < found.best[i].memory_pj());
    for (const EnergyReport& report : found.best) CHECK((limit == 0 || report.sram_bytes <= limit));
  }
}

TEST_CASE("options out of range are refused") {
  const EnergyLayer layer = small_layer();
  const Hierarchy free = named_hierarchy("free");
  CHECK_THROWS_WITH(search_iterative(layer, free, {}, {.levels = 0}), Catch::Contains("levels is 0"));
  CHECK_THROWS_WITH(search_exhaustive(layer, free, {}, {.levels = 6}), Catch::Contains("levels is 6"));
  CHECK_THROWS_WITH(search_exhaustive(layer, free, {.counts = Counts::table2}, {}), Catch::Contains("Table 2"));
  CHECK_THROWS_WITH(search_iterative(layer, free, {.mac_pj = -1}, {}), Catch::Contains("-1"));
  CHECK_THROWS_WITH(search_iterative(layer, free, {.register_pj = 0}, {}), Catch::Contains("register"));
  CHECK_THROWS_WITH(search_exhaustive(table4_layer("conv1"), named_hierarchy("x86"), {}, {.levels = 5}),
                    Catch::Contains("fewer levels"));
}
