// The states of a nest that is written from the inside outwards, and the least energy that completes them.
#pragma once

#include <cstdint>
#include <vector>

#include "models/energy_model.hpp"

namespace convolume::plan {

/// How one dimension has been blocked so far.
struct DimState {
  std::uint8_t size = 0;              ///< index into TileCounts::sizes()
  int used = 0;                       ///< loops so far
  std::vector<std::uint16_t> next{};  ///< states that one more loop leads to
};

/// A dimension that the search blocks.
struct SearchDim {
  Dim dim = Dim::n;
  std::vector<DimState> states{};  ///< from nothing to all, so that loops lead to later states only
  std::uint32_t stride = 1;        ///< of its state in the number of a state of all dimensions
};

/// Which operands have a buffer whose loops are being added, as bits 1 << operand.
using OpenSet = std::uint8_t;
inline constexpr std::size_t open_sets = 5;

/// Where the data of each operand comes from so far, in base `radix`: 0 before the first memory, and the last value for
/// the DRAM. In a free hierarchy all memories are 0.
using Status = std::uint16_t;

/// What it costs to add one loop.
struct LoopCost {
  double pj = 0, bytes = 0;
  Status status = 0;
};

/// The tables of a search. A state of all dimensions is a number, and tells the tile that the loops so far cover.
class SearchStates {
 public:
  /// With a limit of bytes, each byte of a memory costs `byte_pj` besides in the tables: the sum for the cheapest nest,
  /// less the price of the limit, is at most the energy of any nest within the limit (a Lagrangian bound). Throws
  /// InvalidArgument if there are too many states.
  SearchStates(const EnergyModel& model, int levels, double byte_pj = 0);

  const std::vector<SearchDim>& dims() const noexcept { return dims_; }
  std::uint32_t last() const noexcept { return states_ - 1; }
  Tile tile(std::uint32_t state) const noexcept;
  std::size_t local(const SearchDim& dim, std::uint32_t state) const noexcept {
    return state / dim.stride % dim.states.size();
  }

  /// Returns the set of operands that a loop reuses, as an index of its own.
  std::size_t reused(Dim dim, const Tile& inside) const noexcept;
  static OpenSet bits(std::size_t open) noexcept;

  /// Costs of one tile, computed once and used for all loops around it.
  struct TileCosts {
    std::array<double, 3> accesses{}, sram_pj{}, bytes{};
    std::array<std::size_t, 3> level{};  ///< of a fixed hierarchy that has room, if nothing else is there
    std::array<bool, 3> latched{};
  };
  TileCosts costs(const Tile& tile) const;

  /// Returns the choices that there are when the open set changes: from which memory the new buffers are read.
  void choices(const TileCosts& costs, std::size_t from, std::size_t to, Status status,
               std::vector<LoopCost>& choices) const;
  /// Returns the energy of reading from the DRAM what no memory has asked for, when all loops are there.
  double end_pj(const TileCosts& costs, std::size_t open, Status status) const noexcept;
  /// Returns the choices before the first loop.
  std::vector<LoopCost> begin(const TileCosts& costs) const;

  double byte_pj() const noexcept { return byte_pj_; }
  /// Returns the least energy of all nests, the price of their bytes included.
  double least() const;
  /// Returns the least energy that completes a state, the price of bytes included.
  double to_go(std::uint32_t state, std::size_t open, Status status) const noexcept {
    return to_go_[(state * open_sets + open) * statuses_ + status];
  }

 private:
  Status radix() const noexcept { return radix_; }
  std::size_t of(Status status, std::size_t operand) const noexcept { return status / power_[operand] % radix_; }
  Status with(Status status, std::size_t operand, std::size_t value) const noexcept;
  double paid(std::size_t operand, std::size_t status) const noexcept;
  void add_buffer(const TileCosts& costs, std::size_t operand, std::vector<LoopCost>& choices) const;
  void add_end_of_x(const TileCosts& costs, std::vector<LoopCost>& choices) const;
  void fill();

  const EnergyModel& model_;
  bool free_, separate_;
  double byte_pj_;
  std::vector<SearchDim> dims_;
  std::uint32_t states_ = 1;
  Status radix_ = 2, statuses_ = 8;
  std::array<Status, 3> power_{};
  std::vector<float> to_go_;
};

}  // namespace convolume::plan
