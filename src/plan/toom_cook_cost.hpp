// The engine toom_cook: which problems it serves, how windows are grouped, and the estimated cost.
#pragma once

#include <array>
#include <string>

#include "convolume/conv_problem.hpp"
#include "convolume/machine.hpp"
#include "plan/cost_model.hpp"

namespace convolume::plan {

// F(4,3) along an axis of 3 taps: windows of 6 voxels give 4 results.
inline constexpr index_t window_taps = 3, window_points = 6, window_results = 4;

/// The kernels that have windows.
inline constexpr std::array window_kernels{Extent3{3, 3, 3}, Extent3{1, 3, 3}, Extent3{3, 1, 1}};

/// The windows of one of these kernels. An axis of 3 taps is transformed. Along an axis of
/// one tap nothing is transformed: each voxel is a window, which has one point and one result.
struct WindowShape {
  Extent3 taps = Extent3::all(window_taps);

  bool transforms_planes() const noexcept { return taps.x > 1; }  ///< rows and columns: both or none
  bool transforms_lines() const noexcept { return taps.z > 1; }   ///< lines along Z
  /// Returns the voxels that neighbouring windows share along each axis.
  Extent3 overlap() const noexcept { return taps - Extent3::all(1); }
  Extent3 results() const noexcept;
  Extent3 points() const noexcept { return results() + overlap(); }
  /// Returns the voxels along each axis that so many neighbouring windows read.
  Extent3 voxels(const Extent3& windows) const noexcept { return windows * results() + overlap(); }
  /// Returns how many windows along each axis cover so many results.
  Extent3 windows_of(const Extent3& extent) const noexcept;
  index_t plane_frequencies() const noexcept { return points().y * points().x; }
  index_t frequencies() const noexcept { return points().z * plane_frequencies(); }
};

// The order of sums over channels. These constants decide rounding. The first number of channels are summed in a
// register, the second number of such sums are added one after the other, and the results are added pairwise.
inline constexpr index_t terms_in_register = 16, register_sums_in_turn = 8;
/// The same for the windows that a weight gradient sums.
inline constexpr index_t windows_in_register = 16, window_sums_in_turn = 16;

/// The fewest channels of x and of y: vectors hold whole blocks of them.
inline constexpr index_t least_window_channels = 16;

/// Returns why toom_cook does not serve a problem with one group, or an empty string.
std::string toom_cook_unsupported_reason(const ConvProblem& problem);

/// How the windows of y or dx are handled: `group` windows along each axis are transformed, multiplied and inverted by
/// one task. If there are few groups, each is computed by several tasks: the blocks of target channels are divided into
/// `parts`, and each part transforms the source for itself. No result depends on the plan.
struct WindowPlan {
  Extent3 group{1, 1, 1};
  index_t parts = 1;
  double seconds = 0;  ///< of the direction, on one core
};

/// Returns the plan with the least estimated time for forward or backward data. `problem` is not transposed. The
/// plan follows from the caches and cores of the machine.
WindowPlan plan_windows(const ConvProblem& problem, Direction direction, const MachineModel& machine);

/// How the windows of dy are summed to the weight gradient. All of this decides rounding, and depends on the problem
/// only.
struct WindowSums {
  Extent3 chunk{1, 1, 1};   ///< windows along each axis that are summed in registers: at most windows_in_register
  Extent3 chunks{1, 1, 1};  ///< along each axis, per sample
  index_t batch = 1;

  index_t per_sample() const noexcept { return chunks.volume(); }
  index_t all() const noexcept { return batch * per_sample(); }
  /// Return the number of parts, which are of nearly equal size, and the first chunk of a part. The chunks of a part
  /// are added in turn, and parts are added pairwise.
  index_t parts() const;
  index_t first_of_part(index_t part) const;
};
/// Returns the sums of a problem that is not transposed.
WindowSums window_sums(const ConvProblem& problem);

/// Returns how many channels of a side are summed at a time: a few whole blocks, so that the sums stay in the caches.
/// No result depends on it.
index_t sum_channels(const WindowShape& shape, DataType type, index_t channels);

/// Returns the operations of the transforms of a group of windows of one channel, there and back.
double window_transform_flops(const WindowShape& shape, const Extent3& windows);

/// Returns the estimated seconds of the wanted directions on one core. `problem` is not transposed.
double toom_cook_seconds(const ConvProblem& problem, const Wanted& wanted, const MachineModel& machine);
/// Returns the estimated seconds to transform the weights of so many pairs of channels on one core.
double window_weight_seconds(const WindowShape& shape, double pairs, DataType type, const MachineModel& machine);
/// Returns the estimated bytes beside the tensors while the wanted directions run.
double toom_cook_bytes(const ConvProblem& problem, const Wanted& wanted);

}  // namespace convolume::plan
