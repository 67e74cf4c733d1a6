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

/// Returns the seconds to transpose so many rows of voxels between plain tensors and blocks of lanes.
double staged_seconds(double rows, double width) { return rows * (window_row_seconds + width * plain_seconds); }

/// Returns the estimated seconds of all windows of a sample on one core.
double seconds_of(const ConvProblem& p, const Channels& channels, const Extent3& count, const WindowPlan& plan,
                  const MachineModel& machine) {
  const Extent3& group = plan.group;
  const auto parts = static_cast<double>(plan.parts);
  const double rows = static_cast<double>(group.volume()), windows = static_cast<double>(count.volume());
  Extent3 groups;
  for (int axis = 0; axis < 3; ++axis) groups[axis] = divided_up(count[axis], group[axis]);
  const auto planes = static_cast<double>((count.z * window_results + 2 * groups.z) * count.y * count.x);
  // Rows and columns of each plane, and lines along Z.
  const double in = (2 * window_points * planes + plane_frequencies * windows) * channels.source * parts;
  const double out =
      windows * (plane_frequencies + window_results * (window_points + window_results)) * channels.target;
  const double width = std::max(channels.source, channels.target);
  const double spectra =
      channels.size * plane_frequencies * rows * width * (window_results + 2.0 / static_cast<double>(group.z));
  const double weights = channels.size * window_frequencies * channels.source * channels.target;
  const auto l2 = static_cast<double>(machine.usable_l2_bytes);
  const auto l3 = static_cast<double>(machine.usable_l3_bytes) / static_cast<double>(machine.l3_cores);
  const double spilled = std::clamp(spectra / l2 - window_free_share, 0.0, 1.0);
  const double rate = peak(p.type, machine) * machine.tile_transform_share * window_transform_factor;
  const double transforms = line_flops * (in + out) / rate * (1 + window_spilled_factor * spilled);
  const double lanes = 64 / channels.size;
  double staged = 0;
  if (channels.plain_source) {
    const double rows_read = static_cast<double>(groups.x * count.y) * window_points * planes /
                             static_cast<double>(count.y * count.x) * channels.source / lanes * parts;
    staged += staged_seconds(rows_read, static_cast<double>(group.x * window_results + 2));
  }
  if (channels.plain_target) {
    const double rows_written =
        static_cast<double>(groups.x * count.y * count.z) * window_results * window_results * channels.target / lanes;
    staged += staged_seconds(rows_written, static_cast<double>(group.x * window_results));
  }
  const double products = 2 * window_frequencies * windows * channels.source * channels.target /
                          (peak(p.type, machine) * machine.tile_product_share * window_product_factor *
                           few_rows_factor(rows, wide_vectors(machine)));
  const double bandwidth = 1e9 * (weights < l2 / 2 ? machine.l2_gb_per_s
                                  : weights < l3   ? machine.l3_gb_per_s
                                                   : machine.dram_gb_per_s);
  const double reading = weights * static_cast<double>(groups.volume()) / bandwidth;
  const double tasks = static_cast<double>(p.batch * groups.volume()) * parts;
  const double idle = 1 + waiting_share + idle_share * std::max(0.0, static_cast<double>(machine.cores) - 1) / tasks;
  return (transforms + staged + std::max(products, reading) + window_hidden_share * std::min(products, reading)) *
             idle +
         machine.task_s * parts * static_cast<double>(groups.volume());
}

index_t balanced(index_t count, index_t most) { return divided_up(count, divided_up(count, most)); }

double gradient_seconds(const ConvProblem& p, const MachineModel& machine) {
  const Channels channels = channels_of(p, p.in_channels, p.out_channels);
  const WindowSums sums = window_sums(p);
  const Extent3 count = windows_of(p.output());
  const auto windows = static_cast<double>(p.batch * count.volume());
  const double x =
      windows * (2 * window_points * (window_results + 2.0 / static_cast<double>(sums.chunk.z)) + plane_frequencies);
  const double dy = windows * (window_results * (window_results + window_points) + plane_frequencies);
  const auto in_block = static_cast<double>(sum_channels(p.type, p.in_channels)),
             out_block = static_cast<double>(sum_channels(p.type, p.out_channels));
  const double repeated_x = std::ceil(channels.target / out_block), repeated_dy = std::ceil(channels.source / in_block);
  const double transforms = line_flops * (x * channels.source * repeated_x + dy * channels.target * repeated_dy) /
                            (peak(p.type, machine) * machine.tile_transform_share * window_transform_factor);
  const double rows = static_cast<double>(sums.chunk.volume());
  const double products =
      2 * window_frequencies * windows * channels.source * channels.target /
      (peak(p.type, machine) * machine.tile_product_share * window_sum_factor * (rows / (rows + 2)));
  return (transforms + products) * (1 + waiting_share) +
         window_weight_seconds(channels.source * channels.target, p.type, machine) / 2;
}

}  // namespace

Extent3 windows_of(const Extent3& results) {
  Extent3 count;
  for (int axis = 0; axis < 3; ++axis) count[axis] = divided_up(results[axis], window_results);
  return count;
}

std::string toom_cook_unsupported_reason(const ConvProblem& p) {
  if (p.kernel != Extent3::all(3)) {
    return fmt::format("serves kernels of 3 x 3 x 3 voxels, not {}", to_string(p.kernel));
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
  // Long rows of plain tensors are transposed faster.
  const index_t most_x = channels.plain_source || channels.plain_target ? 16 : 8;
  const Extent3 count = windows_of(forward ? p.output() : p.input);
  const index_t blocks = static_cast<index_t>(channels.target) / channel_block(p.type);
  WindowPlan best;
  for (index_t z = 1; z <= std::min<index_t>(6, count.z); ++z) {
    for (const index_t y : {1, 2, 3, 4}) {
      for (index_t x = 1; x <= std::min(most_x, count.x) && y <= count.y; ++x) {
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

index_t sum_channels(DataType type, index_t channels) {
  const index_t block = channel_block(type);
  return balanced(divided_up(channels, block), sum_blocks) * block;
}

WindowSums window_sums(const ConvProblem& p) {
  const Extent3 count = windows_of(p.output());
  WindowSums sums{.batch = p.batch};
  sums.chunk.x = balanced(count.x, 4);
  sums.chunk.z = balanced(count.z, windows_in_register / sums.chunk.x);
  sums.chunk.y = balanced(count.y, windows_in_register / (sums.chunk.x * sums.chunk.z));
  for (int axis = 0; axis < 3; ++axis) sums.chunks[axis] = divided_up(count[axis], sums.chunk[axis]);
  return sums;
}

index_t WindowSums::parts() const { return divided_up(all(), window_sums_in_turn); }
index_t WindowSums::first_of_part(index_t part) const { return all() * part / parts(); }

double window_weight_seconds(double pairs, DataType type, const MachineModel& machine) {
  // Lines of 9 rows, 18 columns, and 36 along Z, in double.
  return pairs * (9 + 18 + 36) * line_flops / (peak(type, machine) * window_kernel_share);
}

double toom_cook_seconds(const ConvProblem& p, const Wanted& wanted, const MachineModel& machine) {
  double seconds = 0;
  const Channels channels = channels_of(p, p.in_channels, p.out_channels);
  for (const Direction direction : {Direction::forward, Direction::backward_data}) {
    if (!(direction == Direction::forward ? wanted.forward : wanted.data)) continue;
    seconds += plan_windows(p, direction, machine).seconds +
               window_weight_seconds(channels.source * channels.target, p.type, machine);
  }
  return seconds + (wanted.weights ? gradient_seconds(p, machine) : 0);
}

double toom_cook_bytes(const ConvProblem& p, const Wanted& wanted) {
  const Channels channels = channels_of(p, p.in_channels, p.out_channels);
  const double values = channels.size * channels.source * channels.target * window_frequencies;
  const double packed = values * 27 / window_frequencies;
  const double sums = channels.size * window_frequencies *
                      static_cast<double>(sum_channels(p.type, p.in_channels) * sum_channels(p.type, p.out_channels)) *
                      (2 + std::log2(static_cast<double>(window_sums(p).parts())));
  return values * (one_if(wanted.forward) + one_if(wanted.data)) + packed + sums * one_if(wanted.weights);
}

}  // namespace convolume::plan
