// The exhaustive search for tiles of paper 001, section 4.3, and the layers that the paper measures.
#include <algorithm>
#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "models/transfer.hpp"

namespace convolume::plan {
namespace {

constexpr double most_searched_tiles = 1 << 26;
constexpr double naive_usage = 0.8;  ///< section 6.1

std::vector<index_t> divisors(index_t n) {
  std::vector<index_t> small, large;
  for (index_t i = 1; i * i <= n; ++i) {
    if (n % i != 0) continue;
    small.push_back(i);
    if (i * i != n) large.push_back(n / i);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

auto cheapest_first(const TileCost& cost) { return std::tuple(cost.total, cost.held_words, cost.tile); }
auto fullest_first(const TileCost& cost) { return std::tuple(-cost.usage, cost.total, cost.tile); }

/// Collects what the search looks for. Naive tiles are kept as short records, because there may be millions.
class Found {
 public:
  explicit Found(const TransferProblem& problem) : problem_(problem) {
    if (problem.counts == TransferCounts::exact) space_ = spaces(problem.problem, Direction::forward).front();
  }

  void add(const TransferTile& tile) {
    const TileCost cost = cost_of(tile);
    if (plan_.feasible_tiles == 0 || cheapest_first(cost) < cheapest_first(plan_.best)) plan_.best = cost;
    if (plan_.feasible_tiles == 0 || fullest_first(cost) < fullest_first(plan_.fullest)) plan_.fullest = cost;
    ++plan_.feasible_tiles;
    if (cost.usage >= naive_usage) full_.emplace_back(cost.total, tile);
  }

  TransferPlan plan() && {
    plan_.naive_tiles = static_cast<double>(full_.size());
    if (!full_.empty()) {
      const auto middle = full_.begin() + static_cast<std::ptrdiff_t>((full_.size() - 1) / 2);
      std::nth_element(full_.begin(), middle, full_.end());
      plan_.naive = cost_of(middle->second);
    }
    return plan_;
  }

 private:
  TileCost cost_of(const TransferTile& tile) const {
    return space_ ? counted_cost(problem_, *space_, tile) : equation_cost(problem_, tile);
  }

  const TransferProblem& problem_;
  std::optional<NestSpace> space_;  ///< only for exact counts
  TransferPlan plan_;
  std::vector<std::pair<double, TransferTile>> full_;
};

}  // namespace

index_t least_capacity(const TransferProblem& problem) {
  problem.validate();
  const double bytes = 2 * static_cast<double>(problem.element_bytes) * static_cast<double>(held_words(problem, {}));
  constexpr double most = 1125899906842624;  // 2^50, the most that validate() allows
  if (bytes > most) {
    throw InvalidArgument(
        fmt::format("{}: two halves with a tile of one voxel would take {:.3g} bytes, more than {:.3g}; "
                    "the kernel spans too much",
                    to_string(problem.problem), bytes, most));
  }
  return static_cast<index_t>(bytes);
}

TransferPlan plan_transfers(const TransferProblem& problem) {
  if (const index_t least = least_capacity(problem); problem.capacity_bytes < least) {
    throw InvalidArgument(
        fmt::format("capacity_bytes = {}: two halves must hold a tile of one voxel and one channel each; "
                    "use at least {}",
                    problem.capacity_bytes, least));
  }
  const TransferTile all = whole_tile(problem);
  const std::array tiles{divisors(all.z), divisors(all.y), divisors(all.x), divisors(all.c), divisors(all.k)};
  double count = 1;
  for (const auto& extents : tiles) count *= static_cast<double>(extents.size());
  if (count > most_searched_tiles) {
    throw InvalidArgument(
        fmt::format("the problem has {} tiles, more than {} take long; use extents with fewer divisors", count,
                    most_searched_tiles));
  }
  Found found(problem);
  // A tile that does not fit ends the innermost loop, because larger ones do not fit either.
  for (const index_t z : tiles[0]) {
    for (const index_t y : tiles[1]) {
      for (const index_t x : tiles[2]) {
        for (const index_t c : tiles[3]) {
          for (const index_t k : tiles[4]) {
            const TransferTile tile{.z = z, .y = y, .x = x, .c = c, .k = k};
            if (held_words(problem, tile) > half_words(problem)) break;
            found.add(tile);
          }
        }
      }
    }
  }
  return std::move(found).plan();
}

std::vector<NamedProblem> flownet_s_layers() {
  // The paper cites the network (Fischer et al., 2015) without its sizes. These have the 96 MB of weights of section
  // 2.2.
  constexpr std::array layers{
      std::pair{"conv_1", "ic6ih384iw512oc64kh7sh2ph3"},   std::pair{"conv_2", "ic64ih192iw256oc128kh5sh2ph2"},
      std::pair{"conv_3", "ic128ih96iw128oc256kh5sh2ph2"}, std::pair{"conv_3.1", "ic256ih48iw64oc256kh3ph1"},
      std::pair{"conv_4", "ic256ih48iw64oc512kh3sh2ph1"},  std::pair{"conv_4.1", "ic512ih24iw32oc512kh3ph1"},
      std::pair{"conv_5", "ic512ih24iw32oc512kh3sh2ph1"},  std::pair{"conv_5.1", "ic512ih12iw16oc512kh3ph1"},
      std::pair{"conv_6", "ic512ih12iw16oc1024kh3sh2ph1"}, std::pair{"conv_6.1", "ic1024ih6iw8oc1024kh3ph1"}};
  std::vector<NamedProblem> all;
  for (const auto& [name, text] : layers) all.push_back({.name = name, .problem = parse_problem(text)});
  return all;
}

}  // namespace convolume::plan
