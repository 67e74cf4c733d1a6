// Costs of tiles by the equations of paper 001, and by exact counts.
#include "models/transfer.hpp"

#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::plan {
namespace {

constexpr std::string_view letters = "zyxck";
constexpr const char* valid_order = "write each of z, y, x, c and k once, the outermost loop first, for example zyxck";

constexpr Dim dim_of(char letter) {
  constexpr std::array dims{Dim::z, Dim::y, Dim::x, Dim::c, Dim::k};
  return dims[letters.find(letter)];
}

/// Paper 001: x moves with the loops s, t and k, w with k and z, y with s, t and z.
constexpr std::string_view moving_letters(Operand operand) {
  return operand == Operand::x ? "zyxc" : operand == Operand::w ? "ck" : "zyxk";
}

void check_order(const TransferProblem& p) {
  for (std::size_t i = 0; i < p.order.size(); ++i) {
    const char letter = p.order[i];
    if (letters.find(letter) == std::string_view::npos) {
      throw InvalidArgument(fmt::format("order '{}': '{}' is no loop; {}", p.order, letter, valid_order));
    }
    if (p.order.find(letter) != i) {
      throw InvalidArgument(fmt::format("order '{}': '{}' stands twice; {}", p.order, letter, valid_order));
    }
  }
  const TransferTile all = whole_tile(p);
  for (const char letter : letters) {
    if (p.order.find(letter) == std::string::npos && extent_of(all, letter) > 1) {
      throw InvalidArgument(fmt::format("order '{}': no loop covers the {} iterations of '{}'; {}", p.order,
                                        extent_of(all, letter), letter, valid_order));
    }
  }
}

void check_tile(const TransferProblem& p, const TransferTile& tile) {
  const TransferTile all = whole_tile(p);
  for (const char letter : letters) {
    const index_t extent = extent_of(tile, letter), of = extent_of(all, letter);
    if (extent < 1 || of % extent != 0) {
      throw InvalidArgument(fmt::format("tile '{}': {} does not divide the {} iterations of '{}'; use a divisor",
                                        to_string(tile), extent, of, letter));
    }
  }
}

/// Returns the iterations of the loops of `order` from the outermost to the innermost one that moves the operand.
double trips(const TransferProblem& p, const TransferTile& tile, Operand operand) {
  const TransferTile all = whole_tile(p);
  const std::size_t innermost = p.order.find_last_of(moving_letters(operand));
  double trips = static_cast<double>(p.problem.batch * p.problem.groups);
  for (std::size_t i = 0; innermost != std::string::npos && i <= innermost; ++i) {
    trips *= static_cast<double>(extent_of(all, p.order[i]) / extent_of(tile, p.order[i]));
  }
  return trips;
}

TransferCost priced(const TransferPrice& price, double calls, double jumps, double words) {
  return {.calls = calls, .jumps = jumps, .words = words, .cost = price.of(calls, jumps, words)};
}

void add_total(TileCost& cost) {
  for (const TransferCost& transfer : cost.transfers) cost.total += transfer.cost;
}

TileCost without_transfers(const TransferProblem& p, const TransferTile& tile) {
  TileCost cost{.tile = tile};
  cost.held_words = held_words(p, tile);
  cost.usage = cost.held_words / half_words(p);
  cost.feasible = cost.usage <= 1;
  return cost;
}

LoopNest nest_of(const TransferProblem& problem, const TransferTile& tile) {
  LoopNest nest;
  if (problem.problem.batch > 1) nest.loops.push_back({.dim = Dim::n});
  for (const char letter : problem.order) nest.loops.push_back({.dim = dim_of(letter)});
  nest.microkernel = nest.loops.size();
  for (const char letter : letters) nest.loops.push_back({.dim = dim_of(letter), .extent = extent_of(tile, letter)});
  for (const Dim dim : {Dim::kz, Dim::ky, Dim::kx}) nest.loops.push_back({.dim = dim});
  return nest;
}

}  // namespace

const char* name_of(TransferFootprint footprint) noexcept {
  return footprint == TransferFootprint::halo ? "halo" : "paper";
}

const char* name_of(TransferCounts counts) noexcept {
  return counts == TransferCounts::equations ? "equations" : "exact";
}

void TransferProblem::validate() const {
  problem.validate();
  if (problem.transposed) {
    throw Unsupported(
        "transfers are not modelled for transposed convolutions; write the convolution whose gradient it "
        "is");
  }
  price.validate();
  const auto check = [](const char* name, index_t value, index_t most) {
    if (value < 1 || value > most) {
      throw InvalidArgument(fmt::format("{} = {}: valid are 1 to {}", name, value, most));
    }
  };
  check("element_bytes", element_bytes, 1024);
  check("capacity_bytes", capacity_bytes, index_t{1} << 50);
  check_order(*this);
}

std::string to_string(const TransferTile& tile) {
  return fmt::format("z{} y{} x{} c{} k{}", tile.z, tile.y, tile.x, tile.c, tile.k);
}

TransferTile whole_tile(const TransferProblem& p) {
  const Extent3 y = p.problem.output();
  return {.z = y.z,
          .y = y.y,
          .x = y.x,
          .c = p.problem.in_channels / p.problem.groups,
          .k = p.problem.out_channels / p.problem.groups};
}

index_t extent_of(const TransferTile& tile, char letter) {
  switch (letter) {
    case 'z':
      return tile.z;
    case 'y':
      return tile.y;
    case 'x':
      return tile.x;
    case 'c':
      return tile.c;
    default:
      return tile.k;
  }
}

double half_words(const TransferProblem& p) {
  return static_cast<double>(p.capacity_bytes) / 2 / static_cast<double>(p.element_bytes);
}

double held_words(const TransferProblem& p, const TransferTile& tile) {
  const Extent3 sigma = Extent3{tile.z, tile.y, tile.x} * p.problem.stride;
  const Extent3 halo = p.footprint == TransferFootprint::halo ? p.problem.span() - Extent3::all(1) : Extent3{0, 0, 0};
  const auto c = static_cast<double>(tile.c), k = static_cast<double>(tile.k);
  double x = c, w = c * k, y = k;
  for (int axis = 0; axis < 3; ++axis) {
    x *= static_cast<double>(sigma[axis] + halo[axis]);
    w *= static_cast<double>(p.problem.kernel[axis]);
    y *= static_cast<double>(sigma[axis] / p.problem.stride[axis]);
  }
  return x + w + k + y;
}

TileCost equation_cost(const TransferProblem& p, const TransferTile& tile) {
  TileCost cost = without_transfers(p, tile);
  const Extent3& s = p.problem.stride;
  const auto c = static_cast<double>(tile.c), k = static_cast<double>(tile.k);
  const double y_rows = static_cast<double>(tile.z) * static_cast<double>(tile.y), y_x = static_cast<double>(tile.x);
  const double x_rows = y_rows * static_cast<double>(s.z * s.y), x_x = y_x * static_cast<double>(s.x);
  const Extent3& kernel = p.problem.kernel;
  const double taps = static_cast<double>(kernel.z) * static_cast<double>(kernel.y) * static_cast<double>(kernel.x);
  // One transfer of each operand: equations 2, 4 and 3; and their numbers: equations 5 and 6.
  const std::array<TransferCost, operands.size()> one{
      {{.calls = 1, .jumps = x_rows * c, .words = x_rows * x_x * c},
       {.calls = 1, .jumps = k + 1, .words = k * c * taps + k},
       {.calls = 2, .jumps = 2 * y_rows * k, .words = 2 * y_rows * y_x * k}}};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const double times = trips(p, tile, operands[i]);
    cost.transfers[i] = priced(p.price, times * one[i].calls, times * one[i].jumps, times * one[i].words);
  }
  add_total(cost);
  return cost;
}

TileCost tile_cost(const TransferProblem& problem, const TransferTile& tile) {
  problem.validate();
  check_tile(problem, tile);
  return equation_cost(problem, tile);
}

LoopNest transfer_nest(const TransferProblem& problem, const TransferTile& tile) {
  problem.validate();
  check_tile(problem, tile);
  return nest_of(problem, tile);
}

TileCost counted_cost(const TransferProblem& problem, const NestSpace& space, const TransferTile& tile) {
  const auto fetch_of = [&](const TransferTile& of, Operand operand) {
    const LoopNest nest = nest_of(problem, of);
    return fetch(nest, space, nest.microkernel, operand, Layout::plain);
  };
  TileCost cost = without_transfers(problem, tile);
  for (const Operand operand : operands) {
    Fetch all = fetch_of(tile, operand);
    if (operand == Operand::y) {
      // Each tile of y is fetched once by a nest whose tiles hold all input channels. These first reads are saved.
      TransferTile first = tile;
      first.c = whole_tile(problem).c;
      const Fetch saved = fetch_of(first, operand);
      all.words = 2 * all.words - saved.words;
      all.runs = 2 * all.runs - saved.runs;
      all.loads = 2 * all.loads - saved.loads;
    }
    const auto groups = static_cast<double>(problem.problem.groups);
    cost.transfers[static_cast<std::size_t>(operand)] =
        priced(problem.price, groups * all.loads, groups * all.runs, groups * all.words);
  }
  add_total(cost);
  return cost;
}

TileCost exact_cost(const TransferProblem& problem, const TransferTile& tile) {
  problem.validate();
  check_tile(problem, tile);
  return counted_cost(problem, spaces(problem.problem, Direction::forward).front(), tile);
}

}  // namespace convolume::plan
