// The constants of the cost models and of the searches that they guide, in one place. Each has its unit and the command
// that measures it. They were fitted on a Zen 4 with AVX-512. What differs most between machines is in their rows
// (MachineModel). Prices of files stand in nets/files/tensor_files.cpp and in StreamPrices. A share is a fraction of
// the FMA peak of one core (MachineModel::gflops_per_core), unless the comment names another whole.
#pragma once

#include <array>
#include <utility>

#include "convolume/tensor.hpp"

namespace convolume::plan {

// --- Whole volumes (fft_volume). Command: bench_fft --side-by-side --sizes 8:256, and bench_conv --side-by-side
// --engine fft_volume --problems bench/problems/kernels.txt.
inline constexpr double pruned_transform_share = 0.2;  ///< share that pruned transforms of kernels reach
/// Of the rate of single transforms. The engine also copies lines of tensors, and its threads share the caches.
inline constexpr double volume_engine_share = 0.7;
inline constexpr double volume_product_share = 0.5;  ///< share that pointwise products of spectra reach
inline constexpr double call_seconds = 1e-6;  ///< seconds to set up the buffers, the task and the plan of one transform

// --- Depthwise sums over taps (direct). Command: bench_conv --speed-up --engine direct --problems
// bench/problems/depthwise.txt bench/problems/planar.txt. MachineModel::depthwise_share is that of rows of 7 taps.
inline constexpr double depthwise_layer_factor = 0.86;  ///< of that share for whole layers, whose windows are padded
/// Voxels of a row from which that share is reached, and the factor if the voxels lie apart (strides). Both depend on
/// whether vectors have 512 bits (`wide`).
constexpr double depthwise_row(bool wide) noexcept { return wide ? 16 : 10; }
constexpr double depthwise_strided_factor(bool wide) noexcept { return wide ? 0.47 : 0.7; }
/// Factor to that share for rows of `taps`: each row of taps costs as much as some taps more. With vectors of 512 bits
/// (`wide`), rows of 5 and 7 taps keep their weights in registers, and others take twice as long.
constexpr double depthwise_taps_factor(double taps, bool wide) noexcept {
  constexpr double row_taps = 2.3, full = 7 / (7 + row_taps);
  return taps / (taps + row_taps) / full * (wide && taps != 5 && taps != 7 ? 0.55 : 1);
}
inline constexpr double depthwise_gradient_factor = 0.87;  ///< of the rate, for the weight gradient
inline constexpr double depthwise_tap_seconds = 1.5e-10;   ///< seconds to transpose a tap of a channel

// --- Loop nests (direct).
/// Share of the L3 that a nest's data may fill. It is constant, because a choice must not depend on the number of
/// threads.
inline constexpr double usable_l3_share = 0.25;
/// Cycles to begin a product of `direct`: its lists of taps and its addresses. Command: convolume plan variants
/// --measure, on each fourth layer of the lists in bench/problems/planar_nets (docs/performance/log/direct.md).
inline constexpr double nest_product_cycles = 150;
// Which nests are proposed. Command: bench_conv --choices --engine direct --problems bench/problems/direct.txt.
inline constexpr index_t nest_region_voxels = 128;  ///< the weights of a product are read once for at least so many
inline constexpr index_t nest_most_tasks_per_core = 16, nest_few_tasks_per_core = 4, nest_least_tasks_per_core = 2;
inline constexpr double nest_task_seconds = 32e-6;  ///< at the peak; shorter tasks cost more than they help
inline constexpr index_t nest_part_voxels = 1024;   ///< for fewer voxels another set of sums costs more than it saves
inline constexpr index_t nest_part_bytes = 64ll << 20;  ///< of all sets of sums together
inline constexpr index_t nest_most_parts = 32;
/// Another nest replaces the usual one if the model says that it is faster by more than this factor. Smaller
/// differences are within the error of the model. The second factor is for nests that differ in nothing but longer
/// tasks.
inline constexpr double nest_clearly_faster = 1.05, nest_slightly_faster = 1.02;

// --- Tiles (fft_tiled). Commands: bench_fft --tiles 5:64 for transforms; bench_conv --stages --layout blocked
// --problems bench/problems/headline.txt for all others.
/// Factor to MachineModel::tile_product_share for few rows (tiles) that read a weight spectrum together. With vectors
/// of 512 bits (`wide`), registers hold more rows, so more rows are needed for the full rate.
constexpr double few_rows_factor(double rows, bool wide) noexcept {
  using Factors = std::array<std::pair<double, double>, 6>;
  constexpr Factors wide_factors{{{12, 1}, {8, 0.98}, {6, 0.95}, {4, 0.88}, {3, 0.85}, {2, 0.8}}};
  constexpr Factors narrow_factors{{{12, 1}, {8, 1}, {6, 1}, {4, 0.967}, {3, 0.933}, {2, 0.833}}};
  for (const auto& [from, factor] : wide ? wide_factors : narrow_factors) {
    if (rows >= from) return factor;
  }
  return wide ? 0.5 : 0.556;
}
/// Groups of tiles whose spectra need more than two L2 caches: share of the rate of transforms that is lost for each
/// further L2 size, and share that always remains.
inline constexpr double spilled_share = 0.08, least_spilled_share = 0.75;
inline constexpr index_t register_points = 16;  ///< points of the longest line that fits into the registers
/// Share of the rate of transforms that is left if lines are longer than `register_points`: along X, along Z or Y, and
/// along Y of a tile of one plane.
inline constexpr double long_x_share = 0.85, long_zy_share = 0.88, long_plane_share = 0.78;
inline constexpr double kernel_transform_share = 0.27;  ///< of transforms of kernels, most of whose lines are zero
inline constexpr double kernel_operations_share = 0.4;  ///< of a full transform's operations that a kernel needs
inline constexpr double kernel_seconds = 2e-6;          ///< seconds to set up the transform of one kernel
inline constexpr double cropped_share = 0.85;           ///< of an inverse's operations if only the valid part is needed
inline constexpr double tile_seconds = 7.5e-7;          ///< seconds to set up one tile of one channel block
inline constexpr double plane_seconds = 1e-7;           ///< the same for a tile of one plane
/// Seconds to transpose 64 bytes of channels of one voxel between a plain tensor and a tile. Depthwise convolutions
/// stage no rows of tiles.
inline constexpr double plain_seconds = 1.8e-9, plain_depthwise_seconds = 4e-9;
/// The same if x has so few channels that tiles fill the lanes. Command: bench_conv --speed-up --layout plain, with
/// --choice, on the first layers of all lists.
inline constexpr double plain_small_channels_seconds = 3e-9;
/// Of depthwise transforms if a stride makes phases of x, whose voxels lie apart.
inline constexpr double depthwise_phases_factor = 2;
/// Seconds to load one value of x if tiles fill the lanes and a stride or dilation keeps its voxels apart. Command:
/// bench_conv --stages --dir fwd on first layers with strides.
inline constexpr double apart_value_seconds = 2e-9;
inline constexpr double block_seconds = 8e-8;  ///< seconds of a call for one frequency block of a group
inline constexpr double l2_free_share = 0.6;   ///< of the L2 whose bytes cost nothing to move
/// A buffer that takes at most the first share of a core's part of the L3 is read from the L3. One that takes more than
/// the second share is read from memory. Between them the price rises linearly.
inline constexpr double l3_kept_share = 0.3, l3_lost_share = 1.2;
inline constexpr double waiting_share = 0.06;  ///< of all time: tasks begin and end at different times
inline constexpr double idle_share = 0.2;      ///< of a worker's waiting that is lost; otherwise it finds other work
/// `direct` is chosen if its estimate is less than this factor times the least one. Such differences are within the
/// errors of the models, and transforms lose more speed if other programs use the memory
/// (docs/performance/log/model.md).
inline constexpr double near_estimates = 1.15;
/// An engine is not measured by an autotuning run if its estimate is longer than the best estimate by more than this
/// factor. The cost model is not wrong by so much.
inline constexpr double hopeless_estimate = 8;
/// Seconds that each execution of a streamed tile takes beside its work: threads start together and end one by one.
inline constexpr double execution_seconds = 2e-4;
/// Neighbours of a plain layer have to convert the layout of what they read and write: a layer uses plain tensors only
/// if blocked ones take longer than this factor. Command: bench_net on the nets of the zoo (ADR 11).
inline constexpr double conversion_factor = 1.5;
/// Factor of an iteration's time for each step of Slack that is given up, because workers have fewer tasks to choose
/// from: 1.00 to 1.20 on the nets of the zoo (docs/performance/log/memory.md).
inline constexpr double waiting_per_slack = 0.04;
/// Factor for the weight gradient if its tiles have spectra of their own: every stage then waits for memory in its
/// prologue and its epilogue.
inline constexpr double separate_sums_factor = 1.4;
/// Factor for a transform that is repeated because its spectrum was not kept: such transforms are made a tile at a
/// time, and their spectra go through memory. Command: bench_net --limit all,MIB on the nets of the zoo (2.3 to 6).
inline constexpr double repeated_transform_factor = 4;
/// Bytes of the spectra of x and dy above which no direction keeps them for another one.
inline constexpr double most_kept_spectra_bytes = 1 << 28;
/// Bytes of a chunk of tiles. The sum over tiles is cut into chunks of this size, so it decides rounding. It is a
/// constant, because a choice text has the same bits on every machine.
inline constexpr index_t sum_chunk_bytes = 32 << 20;
/// Bytes of a chunk of tiles if the directions share tiles, but some spectra are not kept. The product of a chunk
/// begins with the sums of the chunks before, so one chunk of all tiles has the same bits.
inline constexpr index_t shared_chunk_bytes = 16 << 20;
/// Bytes of a weight gradient's sums, and of the tiles beside them, that are assumed to stay in the L2. They decide
/// whether the sum is cut into parts, and into which steps, so this is a constant too.
inline constexpr index_t sum_step_bytes = 1 << 20;

// --- Windows (toom_cook). Command: bench_conv --stages --layout blocked --engine toom_cook --problems
// bench/problems/headline.txt.
/// Share of the L2 that half-transformed windows may take. The time of transforms grows linearly beyond it, by the
/// second factor for each further L2.
inline constexpr double window_free_share = 0.8, window_spilled_factor = 1.0;
/// Seconds to begin a row of a plain tensor for a block of channels, beside plain_seconds for each voxel.
inline constexpr double window_row_seconds = 3e-7;
/// Reading weights and multiplying overlap. So much of the shorter one remains.
inline constexpr double window_hidden_share = 0.3;
inline constexpr double window_kernel_share = 0.2;  ///< share that transforms of weights reach
/// Channel blocks of each side that a weight gradient sums at a time, at most: sums of 2 MB in float. Planar windows
/// have a sixth of the frequencies or less, so their sums are smaller.
inline constexpr index_t sum_blocks = 3, planar_sum_blocks = 6;

// --- Other implementations. Command: bench_conv --side-by-side --engine reference (or onednn).
inline constexpr double reference_share = 0.004;  ///< plain loops in double, one voxel at a time, with a test per tap
inline constexpr double onednn_share = 0.9;       ///< oneDNN's direct convolution

// --- Memory. An implementation that would hold more than both of these beside the tensors is unsupported.
inline constexpr double proportionate_bytes = 4.0 * (1ll << 30);  ///< bytes
inline constexpr double proportionate_factor = 4;                 ///< times the bytes of x, w and y together

}  // namespace convolume::plan
