#include "models/energy_counts.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convolume/error.hpp"
#include "plan/nest/axis_sets.hpp"
#include "plan/nest/index_of.hpp"

namespace convolume::plan {
namespace {

constexpr std::array result_dims{Dim::z, Dim::y, Dim::x};
constexpr std::array tap_dims{Dim::kz, Dim::ky, Dim::kx};

/// Whether a loop over `dim` moves to other elements of an operand.
constexpr bool touches(Operand operand, Dim dim) {
  switch (operand) {
    case Operand::x:
      return dim != Dim::k;
    case Operand::w:
      return dim == Dim::k || dim == Dim::c || is_tap(dim);
    default:
      return dim != Dim::c && !is_tap(dim);
  }
}

/// Longer axes would take seconds to divide.
constexpr index_t most_iterations = index_t{1} << 20;

index_t step_of(const EnergyLayer& layer, Dim dim) {
  return dim == Dim::c ? layer.datapath.c : dim == Dim::k ? layer.datapath.k : 1;
}

}  // namespace

TileCounts::TileCounts(const EnergyLayer& layer) : layer_(layer) {
  for (const Dim dim : all_dims) {
    const index_t all = layer.space.of(dim), step = step_of(layer, dim);
    std::vector<index_t>& sizes = sizes_[index_of(dim)];
    if (all > most_iterations) {
      throw InvalidArgument(fmt::format("'{}' has {} iterations; use at most {}", name_of(dim), all, most_iterations));
    }
    for (index_t size = step; size <= all; size += step) {
      if (all % size == 0) sizes.push_back(size);
    }
    if (sizes.size() > std::numeric_limits<std::uint8_t>::max()) {
      throw InvalidArgument(fmt::format("'{}' has {} iterations with {} divisors; choose an extent with at most 255",
                                        name_of(dim), all, sizes.size()));
    }
  }
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const Dim result = result_dims[axis], tap = tap_dims[axis];
    for (const index_t results : sizes(result)) {
      for (const index_t taps : sizes(tap)) {
        Window window;
        for (index_t r = 0; r < layer.space.of(result); r += results) {
          for (index_t t = 0; t < layer.space.of(tap); t += taps) {
            const double words =
                windowed_counts(layer_.space, static_cast<int>(axis), {r, r + results}, {t, t + taps}).size;
            window.sum += words;
            window.largest = std::max(window.largest, words);
          }
        }
        windows_[axis].push_back(window);
      }
    }
  }
}

std::uint8_t TileCounts::size_index(Dim dim, index_t size) const {
  const std::vector<index_t>& all = sizes(dim);
  const auto found = std::lower_bound(all.begin(), all.end(), size);
  if (found != all.end() && *found == size) return static_cast<std::uint8_t>(found - all.begin());
  throw InvalidArgument(fmt::format("an extent of {} for '{}' does not divide its {} iterations; valid are {}", size,
                                    name_of(dim), layer_.space.of(dim), fmt::join(all, ", ")));
}

const TileCounts::Window& TileCounts::window(std::size_t axis, const Tile& tile) const noexcept {
  const std::size_t result = tile[index_of(result_dims[axis])], tap = tile[index_of(tap_dims[axis])];
  return windows_[axis][result * sizes(tap_dims[axis]).size() + tap];
}

double TileCounts::accesses(Operand operand, const Tile& tile) const noexcept {
  const auto trips = [&](Dim dim) { return extent(dim) / size(dim, tile); };
  if (operand == Operand::x) {
    return extent(Dim::n) * extent(Dim::c) * trips(Dim::k) * window(0, tile).sum * window(1, tile).sum *
           window(2, tile).sum;
  }
  if (operand == Operand::w) {
    if (!layer_.weights) return 0;
    return extent(Dim::k) * extent(Dim::c) * extent(Dim::kz) * extent(Dim::ky) * extent(Dim::kx) * trips(Dim::n) *
           trips(Dim::z) * trips(Dim::y) * trips(Dim::x);
  }
  const double results = extent(Dim::n) * extent(Dim::k) * extent(Dim::z) * extent(Dim::y) * extent(Dim::x);
  return results * (2 * trips(Dim::c) * trips(Dim::kz) * trips(Dim::ky) * trips(Dim::kx) - 1);
}

double TileCounts::footprint(Operand operand, const Tile& tile) const noexcept {
  if (operand == Operand::x) {
    return size(Dim::n, tile) * size(Dim::c, tile) * window(0, tile).largest * window(1, tile).largest *
           window(2, tile).largest;
  }
  if (operand == Operand::w) {
    return size(Dim::k, tile) * size(Dim::c, tile) * size(Dim::kz, tile) * size(Dim::ky, tile) * size(Dim::kx, tile);
  }
  return size(Dim::n, tile) * size(Dim::k, tile) * size(Dim::z, tile) * size(Dim::y, tile) * size(Dim::x, tile);
}

double TileCounts::latch_words(Operand operand) const noexcept {
  const auto c = static_cast<double>(layer_.datapath.c), k = static_cast<double>(layer_.datapath.k);
  return operand == Operand::x ? c : operand == Operand::w ? c * k : k;
}

bool TileCounts::reuses(Operand operand, Dim dim, const Tile& inside) const noexcept {
  if (!touches(operand, dim)) return true;
  if (operand != Operand::x || !is_tap(dim)) return false;
  return inside[index_of(result_dims[index_of(dim) - index_of(Dim::kz)])] > 0;
}

void TileCounts::chains(const BlockLoops& loops, Counts counts, BufferChains& chains) const noexcept {
  Tile tile = innermost();
  std::array<bool, 3> open{};
  for (BufferChain& chain : chains) chain.count = 0;
  for (const Operand operand : operands) chains[index_of(operand)].dram = accesses(operand, tile);
  const auto close = [&](Operand operand) {
    BufferChain& chain = chains[index_of(operand)];
    chain.buffers[chain.count++].words = footprint(operand, tile);
    chain.dram = accesses(operand, tile);
    open[index_of(operand)] = false;
  };
  for (const BlockLoop& loop : loops) {
    const std::vector<index_t>& all = sizes(loop.dim);
    const auto next = static_cast<std::uint8_t>(std::lower_bound(all.begin(), all.end(), loop.extent) - all.begin());
    if (next == tile[index_of(loop.dim)]) continue;  // one iteration
    for (const Operand operand : operands) {
      if (operand == Operand::w && !layer_.weights) continue;
      BufferChain& chain = chains[index_of(operand)];
      const bool reused = reuses(operand, loop.dim, tile);
      if (!reused && open[index_of(operand)]) close(operand);
      if (reused && !open[index_of(operand)]) {
        chain.buffers[chain.count].reads = accesses(operand, tile);
        open[index_of(operand)] = true;
      }
    }
    tile[index_of(loop.dim)] = next;
  }
  for (const Operand operand : operands) {
    if (open[index_of(operand)]) close(operand);
  }
  if (counts == Counts::table2) set_table2(loops, chains);
}

/// Table 2's rate of a run of loops, with the border of the window. Loops over taps have the rate that the text gives.
double TileCounts::table2_rate(Operand operand, const BlockLoops& loops, const Tile& inside, std::size_t begin,
                               std::size_t end) const noexcept {
  double rate = operand == Operand::y ? 2 : 1;
  bool has_border = false;
  Tile tile = inside;
  for (std::size_t i = begin; i < end; ++i) {
    const BlockLoop& loop = loops[i];
    const double before = size(loop.dim, tile);
    if (before == static_cast<double>(loop.extent)) continue;
    rate *= static_cast<double>(loop.extent) / before;
    has_border = has_border || (operand == Operand::x && !is_tap(loop.dim));
    tile[index_of(loop.dim)] = size_index(loop.dim, loop.extent);
  }
  if (!has_border) return rate;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const double results = size(result_dims[axis], inside);
    rate *= (results + extent(tap_dims[axis]) - 1) / results;
  }
  return rate;
}

void TileCounts::set_table2(const BlockLoops& loops, BufferChains& chains) const noexcept {
  for (const Operand operand : operands) {
    BufferChain& chain = chains[index_of(operand)];
    if (operand == Operand::w && !layer_.weights) continue;
    std::array<double, BufferChain::most> rates{};
    std::size_t found = 0;
    Tile tile = innermost();
    for (std::size_t i = 0; i < loops.size();) {
      Tile at = tile;
      std::size_t end = i;
      while (end < loops.size()) {
        const Dim dim = loops[end].dim;
        const bool moves = size(dim, at) != static_cast<double>(loops[end].extent);
        if (moves && !reuses(operand, dim, at)) break;
        at[index_of(dim)] = size_index(dim, loops[end].extent);
        ++end;
      }
      if (at != tile && found < chain.count) rates[found++] = table2_rate(operand, loops, tile, i, end);
      if (end == i) {
        at[index_of(loops[i].dim)] = size_index(loops[i].dim, loops[i].extent);
        ++end;
      }
      tile = at;
      i = end;
    }
    double words = 1;
    for (const Dim dim : all_dims) {
      if (touches(operand, dim) && (operand == Operand::w || !is_tap(dim))) words *= extent(dim);
    }
    chain.dram = words;
    for (std::size_t i = chain.count; i-- > 0;) {
      words *= rates[i];
      chain.buffers[i].reads = words;
    }
  }
}

BlockLoops block_loops(const LoopNest& nest, const TileCounts& counts) {
  const EnergyLayer& layer = counts.layer();
  const Datapath& datapath = layer.datapath;
  LoopNest whole = nest;
  for (const Dim dim : {Dim::c, Dim::k}) {
    const bool has = std::any_of(nest.loops.begin(), nest.loops.end(), [&](const Loop& l) { return l.dim == dim; });
    if (!has) whole.loops.push_back({.dim = dim});
  }
  validate(whole, std::span(&layer.space, 1));
  // Between two buffers of an operand lies a loop that moves its footprint.
  if (whole.loops.size() >= 2 * BufferChain::most) {
    throw InvalidArgument(
        fmt::format("the nest has {} loops; use less than {}", whole.loops.size(), 2 * BufferChain::most));
  }
  BlockLoops loops;
  for (const BoundLoop& loop : bind(whole, layer.space)) {
    const index_t least = loop.dim == Dim::c ? datapath.c : loop.dim == Dim::k ? datapath.k : 1;
    if (loop.extent <= least) continue;
    counts.size_index(loop.dim, loop.extent);
    if (loop.step > least && loop.extent % loop.step != 0) {
      throw InvalidArgument(
          fmt::format("nest '{}': {} iterations of '{}' are no multiple of the inner loop's {}; "
                      "choose extents that divide each other",
                      to_string(nest), loop.extent, name_of(loop.dim), loop.step));
    }
    loops.push_back({loop.dim, loop.extent});
  }
  std::reverse(loops.begin(), loops.end());
  return loops;
}

LoopNest nest_of(const BlockLoops& loops, const EnergyLayer& layer) {
  LoopNest nest;
  Extents inside{};
  for (const Dim dim : all_dims) inside[index_of(dim)] = step_of(layer, dim);
  for (const Dim dim : {Dim::k, Dim::c}) {
    if (inside[index_of(dim)] > 1) nest.loops.push_back({.dim = dim, .extent = inside[index_of(dim)]});
  }
  const std::size_t datapath = nest.loops.size();
  for (const BlockLoop& loop : loops) {
    if (loop.extent == inside[index_of(loop.dim)]) continue;
    inside[index_of(loop.dim)] = loop.extent;
    nest.loops.push_back({.dim = loop.dim, .extent = is_tap(loop.dim) ? Loop::all : loop.extent});
    if (is_tap(loop.dim) && loop.extent != layer.space.of(loop.dim)) nest.loops.back().extent = loop.extent;
  }
  // Without a datapath of several channels, one multiply-add at a time is the microkernel, and taps are written there.
  std::size_t inner = datapath;
  while (datapath == 0 && inner < nest.loops.size() && is_tap(nest.loops[inner].dim)) ++inner;
  if (nest.loops.empty()) nest.loops.push_back({.dim = Dim::n});
  std::reverse(nest.loops.begin(), nest.loops.end());
  nest.microkernel = nest.loops.size() - std::max<std::size_t>(1, inner);
  return nest;
}

}  // namespace convolume::plan
