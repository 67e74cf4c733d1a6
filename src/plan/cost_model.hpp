// Estimates seconds from operations and bytes only. Estimates do not depend on clock, load or number of threads.
#pragma once

#include "convolume/conv_problem.hpp"
#include "convolume/machine.hpp"

namespace convolume::plan {

constexpr double one_if(bool counted) noexcept { return counted ? 1 : 0; }

/// The directions that will be run. An estimate is the sum over them. Estimates of tiles and of depthwise sums are for
/// problems that are not transposed. For a transposed problem they get the problem of the other direction, with
/// `forward` and `data` swapped (plan::Sides::wanted()). All other estimates take the problem as it is.
struct Wanted {
  bool forward = true, data = true, weights = true;
  double count() const noexcept { return one_if(forward) + one_if(data) + one_if(weights); }
};

/// Returns the share of (tap, output) pairs that read no padding along the first `axes` axes. (Depthwise `direct`
/// multiplies the padding along X.) `problem` is not transposed.
double share_inside(const ConvProblem& problem, int axes);

/// Returns whether the vectors of a model have 512 bits, which follows from its peak.
bool wide_vectors(const MachineModel& machine);

/// The operations and bytes of a piece of work.
struct Work {
  double flops = 0;       ///< floating-point operations
  double efficiency = 1;  ///< share of the FMA peak that such operations reach
  double bytes = 0;       ///< bytes moved from and to memory beyond the last cache level that holds them
  double calls = 0;       ///< pieces of work that are set up one by one
};

/// Returns the estimated time on one core: the larger of compute time and memory time, plus set-up time.
double seconds(const Work& work, const MachineModel& machine);

/// Returns the estimated time of one full transform of `flops` operations.
double transform_seconds(double flops, const MachineModel& machine);

/// Returns the estimated time of the fft_volume engine. `transform` is the transformed extent. `transforms` is the
/// number of such extents side by side (planes, if there is no transform along Z).
double fft_volume_seconds(const ConvProblem& problem, const Extent3& transform, index_t transforms,
                          const Wanted& wanted, const MachineModel& machine);

/// Returns the estimated time of sums over the taps of a depthwise problem: a lane sums over its own channel only.
double direct_depthwise_seconds(const ConvProblem& problem, const Wanted& wanted, const MachineModel& machine);

/// Returns the bytes of the weights of one group in squares of whole channel blocks.
double packed_weight_bytes(const ConvProblem& problem);

/// Returns the estimated time of the reference loops.
double reference_seconds(const ConvProblem& problem, const Wanted& wanted, const MachineModel& machine);

/// Returns the floor of a direction of `direct` on one core: its multiply-adds at the peak, or the bytes of x, w and y
/// from the L3 or from memory.
double direct_floor_seconds(const ConvProblem& problem, const MachineModel& machine);

}  // namespace convolume::plan
