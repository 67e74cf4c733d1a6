// Orders and tiles of the loops around a microkernel (paper 004, section 5.2).
#include "convolume/variants.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "convolume/blocking.hpp"
#include "convolume/error.hpp"
#include "convolume/reuse.hpp"
#include "models/text_hash.hpp"
#include "plan/nest/index_of.hpp"
#include "plan/nest/product_loops.hpp"

namespace convolume::plan {
namespace {

constexpr std::array channel_tiles{index_t{16}, index_t{64}, Loop::all};
constexpr std::array row_tiles{index_t{1}, index_t{7}, index_t{14}, index_t{28}, Loop::all};

/// Extents of the tiles of each dimension: what the loops inside of the tile loops cover.
using Tiles = Extents;
using Order = std::vector<Dim>;

/// The candidates of one direction.
class Candidates {
 public:
  Candidates(const ConvProblem& problem, Direction direction) {
    const auto all = spaces(problem, direction);
    if (all.empty())
      throw Unsupported(fmt::format("{}: no tap reaches a voxel of dx, so there is no loop", to_string(problem)));
    for (const NestSpace& space : all) {
      for (std::size_t i = 0; i < extent_.size(); ++i) extent_[i] = std::max(extent_[i], space.extent[i]);
    }
    step_.fill(1);
    make_microkernel(all.front());
    for (const Dim dim : {Dim::k, Dim::c, Dim::z, Dim::y, Dim::kz, Dim::ky, Dim::kx}) {
      if (of(dim) > step_[index_of(dim)]) default_order_.push_back(dim);
    }
  }

  const Order& default_order() const { return default_order_; }
  /// Returns the tiles that cut nothing.
  Tiles whole() const { return extent_; }

  /// Returns all combinations of tiles that differ.
  std::vector<Tiles> tilings() const {
    std::set<Tiles> found;
    for (const index_t k : channel_tiles) {
      for (const index_t c : channel_tiles) {
        for (const index_t y : row_tiles) {
          Tiles tiles = extent_;
          set(tiles, Dim::k, k);
          set(tiles, Dim::c, c);
          set(tiles, Dim::y, y);
          found.insert(tiles);
        }
      }
    }
    return {found.begin(), found.end()};
  }

  /// Returns the loops over tiles in an order, and then the loops within a tile in the same order.
  LoopNest nest(const Order& order, const Tiles& tiles) const {
    LoopNest nest;
    if (of(Dim::n) > 1) nest.loops.push_back({.dim = Dim::n, .parallel = true, .separate = weights_});
    for (const Dim dim : order) {
      if (tiles[index_of(dim)] < of(dim)) nest.loops.push_back({.dim = dim});
    }
    for (const Dim dim : order) {
      const index_t tile = tiles[index_of(dim)];
      if (tile > step_[index_of(dim)]) nest.loops.push_back({.dim = dim, .extent = tile < of(dim) ? tile : Loop::all});
    }
    if (of(Dim::x) > step_[index_of(Dim::x)]) nest.loops.push_back({.dim = Dim::x});
    nest.microkernel = nest.loops.size();
    nest.loops.insert(nest.loops.end(), microkernel_.begin(), microkernel_.end());
    return nest;
  }

 private:
  index_t of(Dim dim) const { return extent_[index_of(dim)]; }

  void set(Tiles& tiles, Dim dim, index_t size) const {
    if (size == Loop::all) return;
    tiles[index_of(dim)] = std::min(of(dim), std::max(size, step_[index_of(dim)]));
  }

  /// Returns a loop of the microkernel, and makes its extent the step of the loops outside.
  Loop innermost(Dim dim, index_t extent) {
    const bool whole = extent >= of(dim);
    step_[index_of(dim)] = whole ? of(dim) : extent;
    return {.dim = dim, .extent = whole ? Loop::all : extent};
  }

  void make_microkernel(const NestSpace& space) {
    const index_t lanes = space.channel_block;
    weights_ = space.written == Operand::w;
    if (weights_) {
      microkernel_ = {innermost(Dim::x, of(Dim::x)), innermost(Dim::c, lanes), innermost(Dim::k, lanes)};
      return;
    }
    const Dim result = space.written == Operand::x ? Dim::c : Dim::k;
    // Pieces of a row have equal lengths, as far as possible.
    constexpr index_t most_voxels = most_row_voxels(2);
    const index_t pieces = (of(Dim::x) + most_voxels - 1) / most_voxels;
    microkernel_ = {innermost(result == Dim::k ? Dim::c : Dim::k, lanes),
                    innermost(Dim::x, (of(Dim::x) + pieces - 1) / pieces), innermost(result, 2 * lanes)};
  }

  Extents extent_{}, step_{};
  bool weights_ = false;
  std::vector<Loop> microkernel_;
  Order default_order_;
};

/// Nests with different texts, in the order in which they came.
class Distinct {
 public:
  void add(const LoopNest& nest) {
    if (texts_.insert(to_string(nest)).second) nests_.push_back(nest);
  }
  std::size_t size() const { return nests_.size(); }

  /// Keeps the first `kept` nests, and of the others as many as `limit` allows, by a hash of their texts.
  void limit(std::size_t kept, std::size_t limit) {
    if (nests_.size() <= limit) return;
    kept = std::min(kept, limit);
    std::vector<std::pair<std::uint64_t, std::size_t>> order;
    for (std::size_t i = kept; i < nests_.size(); ++i) order.emplace_back(text_hash(to_string(nests_[i])), i);
    std::sort(order.begin(), order.end());
    order.resize(limit - kept);
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    std::vector<LoopNest> taken(nests_.begin(), nests_.begin() + static_cast<std::ptrdiff_t>(kept));
    for (const auto& [hash, i] : order) taken.push_back(nests_[i]);
    nests_ = std::move(taken);
  }

  std::vector<LoopNest> take() { return std::move(nests_); }

 private:
  std::set<std::string> texts_;
  std::vector<LoopNest> nests_;
};

struct Taken {
  std::vector<LoopNest> nests;
  std::size_t candidates;
};

Taken take(const ConvProblem& problem, Direction direction, const VariantOptions& options) {
  problem.validate();
  if (options.limit == 0) throw InvalidArgument("limit = 0: no variant would be left; use at least 1");
  if (problem.groups > 1) {
    throw Unsupported(fmt::format("{} has {} groups: not in this space; variants have one group", to_string(problem),
                                  problem.groups));
  }
  const Candidates candidates(problem, direction);
  Distinct nests;
  Order order = candidates.default_order();
  nests.add(candidates.nest(order, candidates.whole()));
  if (options.space == VariantSpace::tiles) {
    for (const Tiles& tiles : candidates.tilings()) nests.add(candidates.nest(order, tiles));
  } else {
    std::sort(order.begin(), order.end());
    do {
      nests.add(candidates.nest(order, candidates.whole()));
    } while (std::next_permutation(order.begin(), order.end()));
  }
  std::size_t found = nests.size();
  nests.limit(1, options.limit);
  if (options.space == VariantSpace::all) {
    const std::size_t orders = nests.size();
    std::sort(order.begin(), order.end());
    do {
      for (const Tiles& tiles : candidates.tilings()) nests.add(candidates.nest(order, tiles));
      // More than this would take seconds, and a few of them are taken.
    } while (nests.size() < 40'000 && std::next_permutation(order.begin(), order.end()));
    found = std::max(found, nests.size());
    nests.limit(orders, options.limit);
  }
  return {nests.take(), found};
}

/// Packs the working sets of a nest, and sets what follows from them.
void set_reuse(Variant& variant, std::span<const NestSpace> spaces, std::size_t element_bytes,
               const ReuseLevels& levels) {
  for (const NestSpace& space : spaces) {
    const PackedSets sets = pack(variant.nest, space, element_bytes, levels);
    variant.reuse_cost += reuse_cost(sets, levels);
    for (std::size_t i = 0; i < sets.cache_bytes.size(); ++i) variant.level_bytes[i] += sets.cache_bytes[i];
    variant.level_bytes.back() += sets.memory_bytes;
  }
}

}  // namespace

std::vector<LoopNest> variant_nests(const ConvProblem& problem, Direction direction, const VariantOptions& options) {
  return take(problem, direction, options).nests;
}

VariantList variants(const ConvProblem& problem, Direction direction, const VariantOptions& options,
                     const MachineModel& machine, const AcceptVariant& accept) {
  Taken taken = take(problem, direction, options);
  const auto all = spaces(problem, direction);
  const ReuseLevels levels = reuse_levels(machine);
  VariantList list{.variants = {}, .candidates = taken.candidates, .taken = taken.nests.size(), .refused = {}};
  for (LoopNest& nest : taken.nests) {
    const std::string reason = accept(nest);
    if (!reason.empty()) {
      ++list.refused[reason];
      continue;
    }
    const double seconds = nest_cost(nest, problem, direction, machine).seconds();
    Variant& variant = list.variants.emplace_back(Variant{.nest = std::move(nest), .model_seconds = seconds});
    set_reuse(variant, all, size_of(problem.type), levels);
  }
  return list;
}

std::vector<std::size_t> ranked(std::span<const Variant> variants, VariantRank rank) {
  std::vector<std::size_t> order(variants.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    const Variant& one = variants[i];
    return rank == VariantRank::reuse ? std::pair{one.reuse_cost, one.model_seconds}
                                      : std::pair{one.model_seconds, one.reuse_cost};
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  return order;
}

}  // namespace convolume::plan
