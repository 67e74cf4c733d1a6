#include "plan/toom_cook_cost.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "plan/cost_constants.hpp"
#include "plan/sides.hpp"

namespace convolume::plan {
namespace {

index_t divided_up(index_t count, index_t by) { return (count + by - 1) / by; }

/// What the estimates of a direction have in common.
struct Channels {
  double source, target;  ///< as vectors hold them: in whole blocks
  double size;            ///< bytes of an element
  bool plain_source = false, plain_target = false;
};

Channels channels_of(const ConvProblem& p, index_t source, index_t target) {
  const index_t block = channel_block(p.type);
  const auto whole = [&](index_t channels) { return static_cast<double>(divided_up(channels, block) * block); };
  return {.source = whole(source), .target = whole(target), .size = static_cast<double>(size_of(p.type))};
}

double peak(DataType type, const MachineModel& machine) {
  return machine.gflops_per_core * 1e9 / (type == DataType::f32 ? 1 : 2);
}

/// Operations of the transform of a line of six points.
constexpr double line_flops = 24;
/// A copy of a voxel takes as long as this share of a line. It is small because other engines wait for the same voxels.
constexpr double copied_share = 0.05;

/// Returns the lines that are transformed for one plane of a window: so many rows, and six columns. If planes are not
/// transformed, their only voxel is copied.
double plane_lines(const WindowShape& shape, index_t rows) {
  return shape.transforms_planes() ? static_cast<double>(rows + window_points) : copied_share;
}
/// Returns the lines along Z of a window.
double window_lines(const WindowShape& shape) {
  return shape.transforms_lines() ? static_cast<double>(shape.plane_frequencies()) : 0;
}

/// Returns the seconds to transpose so many rows of voxels between plain tensors and blocks of lanes.
double staged_seconds(double rows, double width) { return rows * (window_row_seconds + width * plain_seconds); }

/// Returns the seconds to transpose rows of plain tensors on their way to windows and back.
double staged_seconds(const WindowShape& shape, const Channels& channels, const Extent3& count, const Extent3& groups,
                      const WindowPlan& plan) {
  const double lanes = 64 / channels.size;
  const Extent3 results = shape.results(), voxels = shape.voxels(plan.group);
  double seconds = 0;
  if (channels.plain_source) {
    const index_t planes = count.z * results.z + shape.overlap().z * groups.z;
    const auto rows = static_cast<double>(groups.x * count.y * shape.points().y * planes);
    seconds +=
        staged_seconds(rows * channels.source / lanes * static_cast<double>(plan.parts), static_cast<double>(voxels.x));
  }
  if (channels.plain_target) {
    const auto rows = static_cast<double>(groups.x * count.y * results.y * count.z * results.z);
    seconds += staged_seconds(rows * channels.target / lanes, static_cast<double>(plan.group.x * results.x));
  }
  return seconds;
}

/// Returns the bytes that a group holds between its transforms.
double held_bytes(const WindowShape& shape, const Channels& channels, const Extent3& group) {
  const double planes = static_cast<double>(shape.voxels(group).z) / static_cast<double>(group.z);
  double width = planes * std::max(channels.source, channels.target);
  // Source and target lie apart if lines are not inverted in place.
  if (!shape.transforms_lines()) width = channels.source + channels.target;
  // Complete lines have memory of their own, which counts if planes have only one frequency.
  if (!shape.transforms_planes()) width += static_cast<double>(window_points) * (channels.source + channels.target);
  return channels.size * static_cast<double>(shape.plane_frequencies() * group.volume()) * width;
}

/// Returns the estimated seconds of all windows of a sample on one core.
double seconds_of(const ConvProblem& p, const Channels& channels, const Extent3& count, const WindowPlan& plan,
                  const MachineModel& machine) {
  const WindowShape shape{p.kernel};
  const Extent3 &group = plan.group, results = shape.results();
  const auto parts = static_cast<double>(plan.parts);
  const double rows = static_cast<double>(group.volume()), windows = static_cast<double>(count.volume());
  Extent3 groups;
  for (int axis = 0; axis < 3; ++axis) groups[axis] = divided_up(count[axis], group[axis]);
  const auto planes = static_cast<double>((count.z * results.z + shape.overlap().z * groups.z) * count.y * count.x);
  const double in =
      (plane_lines(shape, window_points) * planes + window_lines(shape) * windows) * channels.source * parts;
  const double out = windows *
                     (window_lines(shape) + static_cast<double>(results.z) * plane_lines(shape, window_results)) *
                     channels.target;
  const auto frequencies = static_cast<double>(shape.frequencies());
  const double weights = channels.size * frequencies * channels.source * channels.target;
  const auto l2 = static_cast<double>(machine.usable_l2_bytes);
  const auto l3 = static_cast<double>(machine.usable_l3_bytes) / static_cast<double>(machine.l3_cores);
  const double spilled = std::clamp(held_bytes(shape, channels, group) / l2 - window_free_share, 0.0, 1.0);
  const double rate = peak(p.type, machine) * machine.window_transform_share;
  const double transforms = line_flops * (in + out) / rate * (1 + window_spilled_factor * spilled);
  const double products =
      2 * frequencies * windows * channels.source * channels.target /
      (peak(p.type, machine) * machine.window_product_share * few_rows_factor(rows, wide_vectors(machine)));
  const double bandwidth = 1e9 * (weights < l2 / 2 ? machine.l2_gb_per_s
                                  : weights < l3   ? machine.l3_gb_per_s
                                                   : machine.dram_gb_per_s);
  const double reading = weights * static_cast<double>(groups.volume()) / bandwidth;
  const double tasks = static_cast<double>(p.batch * groups.volume()) * parts;
  const double idle = 1 + waiting_share + idle_share * std::max(0.0, static_cast<double>(machine.cores) - 1) / tasks;
  return (transforms + staged_seconds(shape, channels, count, groups, plan) + std::max(products, reading) +
          window_hidden_share * std::min(products, reading)) *
             idle +
         machine.task_s * parts * static_cast<double>(groups.volume());
}

index_t balanced(index_t count, index_t most) { return divided_up(count, divided_up(count, most)); }

double gradient_seconds(const ConvProblem& p, const MachineModel& machine) {
  const WindowShape shape{p.kernel};
  const Channels channels = channels_of(p, p.in_channels, p.out_channels);
  const WindowSums sums = window_sums(p);
  const auto windows = static_cast<double>(p.batch * shape.windows_of(p.output()).volume());
  const double planes = static_cast<double>(shape.voxels(sums.chunk).z) / static_cast<double>(sums.chunk.z);
  const double x = windows * (plane_lines(shape, window_points) * planes + window_lines(shape));
  const double dy =
      windows * (static_cast<double>(shape.results().z) * plane_lines(shape, window_results) + window_lines(shape));
  const auto in_block = static_cast<double>(sum_channels(shape, p.type, p.in_channels)),
             out_block = static_cast<double>(sum_channels(shape, p.type, p.out_channels));
  const double repeated_x = std::ceil(channels.target / out_block), repeated_dy = std::ceil(channels.source / in_block);
  const double transforms = line_flops * (x * channels.source * repeated_x + dy * channels.target * repeated_dy) /
                            (peak(p.type, machine) * machine.window_transform_share);
  const double rows = static_cast<double>(sums.chunk.volume());
  const double products = 2 * static_cast<double>(shape.frequencies()) * windows * channels.source * channels.target /
                          (peak(p.type, machine) * machine.window_product_share * (rows / (rows + 2)));
  return (transforms + products) * (1 + waiting_share) +
         window_weight_seconds(shape, channels.source * channels.target, p.type, machine) / 2;
}

/// Returns the chunks of windows with so many windows along X at most.
WindowSums window_sums_of(const ConvProblem& p, const Extent3& count, index_t most_x) {
  WindowSums sums{.batch = p.batch};
  sums.chunk.x = balanced(count.x, most_x);
  sums.chunk.z = balanced(count.z, windows_in_register / sums.chunk.x);
  sums.chunk.y = balanced(count.y, windows_in_register / (sums.chunk.x * sums.chunk.z));
  for (int axis = 0; axis < 3; ++axis) sums.chunks[axis] = divided_up(count[axis], sums.chunk[axis]);
  return sums;
}

}  // namespace

Extent3 WindowShape::results() const noexcept {
  Extent3 results;
  for (int axis = 0; axis < 3; ++axis) results[axis] = taps[axis] > 1 ? window_results : 1;
  return results;
}

Extent3 WindowShape::windows_of(const Extent3& extent) const noexcept {
  const Extent3 step = results();
  Extent3 count;
  for (int axis = 0; axis < 3; ++axis) count[axis] = divided_up(extent[axis], step[axis]);
  return count;
}

std::string toom_cook_unsupported_reason(const ConvProblem& p) {
  if (std::find(window_kernels.begin(), window_kernels.end(), p.kernel) == window_kernels.end()) {
    return fmt::format("serves kernels of 3 x 3 x 3, 1 x 3 x 3 and 3 x 1 x 1 voxels, not {}", to_string(p.kernel));
  }
  if (p.stride != Extent3::all(1)) return fmt::format("serves stride 1, not {}", to_string(p.stride));
  if (p.dilation != Extent3::all(1)) return fmt::format("serves dilation 1, not {}", to_string(p.dilation));
  for (const auto& [channels, what] : {std::pair{p.in_channels, "input"}, std::pair{p.out_channels, "output"}}) {
    if (channels < least_window_channels) {
      return fmt::format("needs at least {} {} channels, there are {}", least_window_channels, what, channels);
    }
  }
  return {};
}

WindowPlan plan_windows(const ConvProblem& p, Direction direction, const MachineModel& machine) {
  const bool forward = direction == Direction::forward;
  Channels channels =
      forward ? channels_of(p, p.in_channels, p.out_channels) : channels_of(p, p.out_channels, p.in_channels);
  channels.plain_source = (forward ? p.x_layout : p.y_layout) == Layout::plain;
  channels.plain_target = (forward ? p.y_layout : p.x_layout) == Layout::plain;
  const WindowShape shape{p.kernel};
  // Long rows of plain tensors are transposed faster. Single voxels are small windows.
  const index_t step_x = shape.transforms_planes() ? 1 : 4;
  const index_t most_x = step_x * (channels.plain_source || channels.plain_target ? 16 : 8);
  const Extent3 count = shape.windows_of(forward ? p.output() : p.input);
  const index_t blocks = static_cast<index_t>(channels.target) / channel_block(p.type);
  WindowPlan best;
  for (index_t z = 1; z <= std::min<index_t>(6, count.z); ++z) {
    for (const index_t y : {1, 2, 3, 4}) {
      for (index_t x = step_x; x < std::min(most_x, count.x) + step_x && y <= count.y; x += step_x) {
        // Groups of equal size have equal work.
        WindowPlan plan{.group = {balanced(count.z, z), balanced(count.y, y), balanced(count.x, x)}};
        for (plan.parts = 1; plan.parts <= std::min<index_t>(blocks, 16); plan.parts *= 2) {
          plan.seconds = static_cast<double>(p.batch) * seconds_of(p, channels, count, plan, machine);
          if (best.seconds == 0 || plan.seconds < best.seconds) best = plan;
        }
      }
    }
  }
  return best;
}

index_t sum_channels(const WindowShape& shape, DataType type, index_t channels) {
  const index_t block = channel_block(type);
  const bool planar = !shape.transforms_lines() || !shape.transforms_planes();
  return balanced(divided_up(channels, block), planar ? planar_sum_blocks : sum_blocks) * block;
}

WindowSums window_sums(const ConvProblem& p) {
  const WindowShape shape{p.kernel};
  const Extent3 count = shape.windows_of(p.output());
  WindowSums best = window_sums_of(p, count, 4);
  if (shape.transforms_planes()) return best;
  // If each voxel is a window, long rows are read faster.
  for (const index_t most_x : {8, 16}) {
    const WindowSums sums = window_sums_of(p, count, most_x);
    if (sums.per_sample() <= best.per_sample()) best = sums;
  }
  return best;
}

index_t WindowSums::parts() const { return divided_up(all(), window_sums_in_turn); }
index_t WindowSums::first_of_part(index_t part) const { return all() * part / parts(); }

double window_transform_flops(const WindowShape& shape, const Extent3& windows) {
  const auto count = static_cast<double>(windows.volume());
  const auto planes = static_cast<double>(shape.voxels(windows).z * windows.y * windows.x);
  const double results = count * static_cast<double>(shape.results().z);
  return line_flops * (plane_lines(shape, window_points) * planes + 2 * window_lines(shape) * count +
                       plane_lines(shape, window_results) * results);
}

double window_weight_seconds(const WindowShape& shape, double pairs, DataType type, const MachineModel& machine) {
  // Lines of rows, columns and along Z, in double: 9, 18 and 36 for 3 x 3 x 3 taps.
  const auto taps_z = static_cast<double>(shape.taps.z);
  const double lines =
      (shape.transforms_planes() ? taps_z * static_cast<double>(window_taps + window_points) : 0) + window_lines(shape);
  return pairs * lines * line_flops / (peak(type, machine) * window_kernel_share);
}

double toom_cook_seconds(const ConvProblem& p, const Wanted& wanted, const MachineModel& machine) {
  double seconds = 0;
  const Channels channels = channels_of(p, p.in_channels, p.out_channels);
  for (const Direction direction : {Direction::forward, Direction::backward_data}) {
    if (!(direction == Direction::forward ? wanted.forward : wanted.data)) continue;
    seconds += plan_windows(p, direction, machine).seconds +
               window_weight_seconds({p.kernel}, channels.source * channels.target, p.type, machine);
  }
  return seconds + (wanted.weights ? gradient_seconds(p, machine) : 0);
}

double toom_cook_bytes(const ConvProblem& p, const Wanted& wanted) {
  const Channels channels = channels_of(p, p.in_channels, p.out_channels);
  const WindowShape shape{p.kernel};
  const auto frequencies = static_cast<double>(shape.frequencies());
  const double pairs = channels.size * channels.source * channels.target;
  const double packed = pairs * static_cast<double>(p.kernel.volume());
  const double sums =
      channels.size * frequencies *
      static_cast<double>(sum_channels(shape, p.type, p.in_channels) * sum_channels(shape, p.type, p.out_channels)) *
      (2 + std::log2(static_cast<double>(window_sums(p).parts())));
  return pairs * frequencies * (one_if(wanted.forward) + one_if(wanted.data)) + packed + sums * one_if(wanted.weights);
}

}  // namespace convolume::plan
