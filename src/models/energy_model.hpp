// The energy of loops, as searches evaluate it.
#pragma once

#include "models/energy_counts.hpp"
#include "models/hierarchy.hpp"

namespace convolume::plan {

class EnergyModel {
 public:
  /// Throws InvalidArgument for an invalid hierarchy or for options out of range.
  EnergyModel(const EnergyLayer& layer, const Hierarchy& hierarchy, const EnergyOptions& options);

  const TileCounts& counts() const noexcept { return counts_; }
  const Hierarchy& hierarchy() const noexcept { return hierarchy_; }
  const EnergyOptions& options() const noexcept { return options_; }

  /// Returns the energy of an access of a memory of this size, per word of an operand.
  double price(Operand operand, double bytes) const;
  /// Returns the energy of an access of a level of a fixed hierarchy.
  double level_price(Operand operand, std::size_t level) const noexcept {
    return level_price_[static_cast<std::size_t>(operand)][level];
  }
  double dram_price() const noexcept;
  /// Returns whether the datapath's latches hold a buffer, so that its accesses cost nothing.
  bool in_latches(Operand operand, double words) const noexcept {
    return options_.free_latches && words <= counts_.latch_words(operand);
  }

  /// Returns the energy of all accesses.
  double memory_pj(const BlockLoops& loops) const;
  EnergyReport report(const BlockLoops& loops) const;

 private:
  /// How many buffers of each operand are memories in a free hierarchy; the others lie in the DRAM. Buffers in latches
  /// count.
  struct Cut {
    std::array<std::size_t, 3> memories{};
    double pj = 0;
  };
  void check_rising(Operand operand) const;
  Cut best_cut(const BufferChains& chains) const;
  std::array<std::size_t, 3> latched(const BufferChains& chains) const noexcept;
  void report_free(const BufferChains& chains, EnergyReport& report) const;
  void report_fixed(const BufferChains& chains, EnergyReport& report) const;

  TileCounts counts_;
  Hierarchy hierarchy_;
  EnergyOptions options_;
  std::array<std::vector<double>, 3> level_price_;
};

}  // namespace convolume::plan
