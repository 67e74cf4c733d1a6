// Estimated seconds, from operations and bytes alone: no clock, no load, no thread count.
#pragma once

#include "convolume/cpu.hpp"
#include "convolume/plan.hpp"

namespace convolume::plan {

constexpr double one_if(bool counted) noexcept { return counted ? 1 : 0; }

/// Directions that will be run: what estimates are sums over. Those of the tiled and the direct way are for problems
/// that are not transposed, whose forward and data have changed places then; the others are as the problem has them.
struct Wanted {
  bool forward = true, data = true, weights = true;
  double count() const noexcept { return one_if(forward) + one_if(data) + one_if(weights); }
};

/// Operations and bytes of a piece of work.
struct Work {
  double flops = 0;       ///< floating-point operations
  double efficiency = 1;  ///< share of the FMA peak that such operations reach
  double bytes = 0;       ///< bytes moved past the last cache level that holds them
  double calls = 0;       ///< pieces that are set up one by one
};

/// The larger of the two limits, one core, and the setting up.
double seconds(const Work& work, const MachineModel& machine);

/// One full transform of so many operations.
double transform_seconds(double flops, const MachineModel& machine);

/// The volume FFT way: `transform` is the extent that is transformed, `transforms` how many of these lie side by side
/// (planes that need no transform along Z).
double fft_volume_seconds(const ConvProblem& problem, const Extent3& transform, index_t transforms,
                          const Wanted& wanted, const MachineModel& machine);

/// The direct way: sums over taps with channels in the lanes. Depthwise problems, where a lane's sums are of its own
/// channel, or one group.
double direct_seconds(const ConvProblem& problem, const Wanted& wanted, const MachineModel& machine);

/// The reference loops.
double reference_seconds(const ConvProblem& problem, const Wanted& wanted, const MachineModel& machine);

}  // namespace convolume::plan
