// The estimated time of a loop nest on a machine: counted memory traffic over bandwidths, and multiply-adds over what
// the register tile of the microkernel reaches.
#pragma once

#include <array>
#include <cstddef>

#include "convolume/machine.hpp"
#include "convolume/nest.hpp"
#include "convolume/version.hpp"

namespace convolume::plan {

/// Cost of one direction on one core. Levels are L1, L2 and L3: level 0 counts what crosses from the L2 into the L1,
/// and level 2 what comes from memory.
struct NestCost {
  static constexpr std::size_t levels = 3;
  double compute_seconds = 0;  ///< of multiply-adds, at the rate of the register tile
  double tile_seconds = 0;     ///< to begin products, and to begin and end the sums of their register tiles
  double copy_seconds = 0;     ///< to copy voxels of plain tensors, and windows with padding for several results
  double pack_seconds = 0;     ///< to reorder the weights, or the sums of their gradient
  double task_seconds = 0;     ///< to begin and end tasks
  std::array<double, levels> bytes{}, move_seconds{};

  /// Adds `times` the cost of `other`.
  CONVOLUME_API void add(const NestCost& other, double times) noexcept;
  /// Returns the index of the level whose traffic takes longest.
  CONVOLUME_API std::size_t slowest_level() const noexcept;
  /// Returns the sum of what does not overlap. Multiply-adds overlap with moves, which are prefetched.
  CONVOLUME_API double seconds() const noexcept;
  /// Returns the bandwidth that a level must have so that its traffic takes as long as the computation, in bytes per
  /// second.
  double needed_bandwidth(std::size_t level) const noexcept { return bytes[level] / (compute_seconds + tile_seconds); }
};

/// Returns the cost of the nest of a direction of `problem`, which may be transposed and must not have groups. Voxels
/// and weights are counted as the blocked layout stores them, because `direct` copies others first. Deterministic:
/// depends on the arguments alone. Throws InvalidArgument if the nest does not fit.
CONVOLUME_API NestCost nest_cost(const LoopNest& nest, const ConvProblem& problem, Direction direction,
                                 const MachineModel& machine);

}  // namespace convolume::plan
