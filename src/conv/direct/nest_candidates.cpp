// The nests that the direct engine takes if none are given: candidates, of which the cost model selects one.
#include <algorithm>
#include <array>
#include <numeric>

#include "conv/direct/direct_nest.hpp"
#include "convolume/blocking.hpp"
#include "plan/cost_constants.hpp"
#include "plan/cost_model.hpp"
#include "plan/nest/product_loops.hpp"
#include "plan/sides.hpp"

namespace convolume::conv {
namespace {

using plan::Dim;
using plan::Direction;
using plan::Loop;
using plan::LoopNest;

constexpr index_t block_bytes = 64;
// Taps of a whole block of terms in one product; a longer sum has more rounding error.
constexpr index_t product_steps = 32;

/// Returns how many tasks there should be: enough for every core, but fewer if they would be short.
index_t wanted_tasks(const ConvProblem& problem, Direction direction, const MachineModel& machine) {
  const index_t block = channel_block(problem.type);
  const index_t results = direction == Direction::backward_data ? problem.in_channels : problem.out_channels;
  const double padded = static_cast<double>(ceil_div(results, block) * block) / static_cast<double>(results);
  const double peak = 1e9 * machine.gflops_per_core * 4 / static_cast<double>(size_of(problem.type));
  const auto tasks = static_cast<index_t>(problem.flops() * padded / peak / plan::nest_task_seconds);
  return std::clamp<index_t>(tasks, plan::nest_least_tasks_per_core * machine.cores,
                             plan::nest_most_tasks_per_core * machine.cores);
}

/// The results of a task: voxels and columns (blocks of result channels), of one sample or of all.
struct TaskTile {
  Extent3 extent{};
  index_t columns = 1;
  bool all_samples = false;
};

/// Divides an axis of `n` into parts of about `part`, from `least` to `most`, so that the busiest of `cores` cores has
/// little more to do than the others. There are `others` times as many tasks as parts. Returns the length of a part.
index_t balanced(index_t n, index_t part, index_t others, index_t cores, index_t least, index_t most) {
  constexpr double least_gain = 1.05;
  const auto load = [&](index_t length) {
    return static_cast<double>(ceil_div(ceil_div(n, length) * others, cores) * length);
  };
  const index_t parts = std::max((n + part / 2) / part, ceil_div(n, most));
  index_t best = ceil_div(n, parts);
  for (index_t count = std::max<index_t>(1, parts - parts / 4); count <= parts + ceil_div(parts, 4);) {
    const index_t length = ceil_div(n, count);
    if (length >= least && length <= most && least_gain * load(length) <= load(best)) best = length;
    if (length == 1) break;
    count = ceil_div(n, length - 1);  // the next one with shorter parts
  }
  return best;
}

/// The number of tasks to aim for, and the machine.
struct TaskCount {
  index_t wanted;
  const MachineModel& machine;
};

/// What distinguishes the candidates.
struct Variant {
  index_t task_bytes = 384 << 10;  ///< of sources and results; the rest of the L2 is for weights
  index_t steps = product_steps;   ///< the most taps of a whole block of terms in one product
  bool single_planes = false;      ///< the taps of a product lie in one plane
  bool all_columns = false;        ///< a task computes all channels
  bool tap_rows = false;           ///< the taps of a row are summed at each term
  bool columns_inside = false;     ///< columns are the loop around a row, not around all voxels of a task
  bool four_columns = false;       ///< four blocks of results are computed together, if there are so many
  /// A task computes all voxels of a sample, or of all samples, if that reads fewer bytes.
  bool whole_samples = false;
  bool sample_rows = false;  ///< products compute the same voxel of several samples, and tasks compute all samples
};

/// The results of a problem: blocks of channels, of which `together` are computed at once.
struct ResultBlocks {
  index_t count, together;
};

/// Returns tasks whose sources and results fit into `task_bytes`. They are so large that weights are read seldom, and
/// there are enough of them for many threads. `source_bytes` of each source voxel are held at once.
TaskTile choose_tasks(const DirectMap& map, index_t batch, index_t source_bytes, const ResultBlocks& blocks,
                      TaskCount tasks, const Variant& variant) {
  const Extent3& n = map.domain();
  const auto bytes = [&](const Extent3& e) {
    const Extent3 window = map.window({{0, 0, 0}, e}).extent();
    const index_t planes = variant.single_planes ? e.z : window.z;
    return source_bytes * planes * window.y * window.x + block_bytes * blocks.count * e.z * e.y * e.x;
  };
  const index_t wanted = std::max(plan::nest_region_voxels, batch * n.z * n.y * n.x / tasks.wanted);
  const auto fits = [&](const Extent3& e) {
    const Extent3 shorter{e.z > 1 ? e.z - 1 : 1, e.z > 1 ? e.y : e.y - 1, e.x};
    return shorter.z * shorter.y * shorter.x < wanted && bytes(e) <= variant.task_bytes;
  };
  TaskTile tile{.extent = {1, 1, n.x}};
  while (tile.extent.y < n.y && fits(tile.extent + Extent3{0, 1, 0})) ++tile.extent.y;
  while (tile.extent.y == n.y && tile.extent.z < n.z && fits(tile.extent + Extent3{1, 0, 0})) ++tile.extent.z;
  // One axis is divided so that all cores are busy.
  const int axis = tile.extent.y == n.y ? 0 : 1;
  const index_t layer = axis == 0 ? n.y * n.x : n.x;
  const auto holds = [&](index_t length) {
    Extent3 e = tile.extent;
    e[axis] = length;
    return bytes(e) <= variant.task_bytes;
  };
  index_t most = tile.extent[axis];
  while (most < n[axis] && holds(most + 1)) ++most;
  // Of phases of a stride, parts have whole steps.
  const index_t step = map.target_step()[axis];
  tile.extent[axis] = std::min(n[axis], step * balanced(ceil_div(n[axis], step), ceil_div(tile.extent[axis], step),
                                                        batch * (axis == 0 ? 1 : n.z), tasks.machine.cores,
                                                        ceil_div(ceil_div(plan::nest_region_voxels, layer), step),
                                                        std::max<index_t>(1, most / step)));
  // Each group of columns stages the sources again, so there are no more groups than needed.
  const index_t regions = ceil_div(n.z, tile.extent.z) * ceil_div(n.y, tile.extent.y);
  const index_t sets = ceil_div(blocks.count, blocks.together);
  const index_t groups = variant.all_columns ? 1 : std::min(sets, ceil_div(tasks.wanted, 2 * batch * regions));
  tile.columns = std::min(blocks.count, blocks.together * ceil_div(sets, groups));
  return tile;
}

/// What the tasks of a problem read.
struct TaskSources {
  index_t batch;
  index_t blocks, held;  ///< blocks of source channels; those of one step
  index_t weight_bytes;  ///< of all channels
};

/// Returns the number of parts of a sample, each of which reads all weights.
index_t parts_of_sample(const DirectMap& map, const TaskTile& tile) {
  const Extent3 &n = map.domain(), step = map.target_step();
  const auto parts = [&](int axis) {
    return ceil_div(ceil_div(n[axis], step[axis]), ceil_div(tile.extent[axis], step[axis]));
  };
  return parts(0) * parts(1);
}

/// Returns the task that computes all voxels of all samples, two columns at a time, or `tile` if that one is better.
/// The tasks of each sample read all weights, so this helps if weights leave the L2 in between. It reads fewer bytes if
/// the weights outweigh the sources, which more groups of columns read more often. The data of a step have to fit into
/// half of the L2, and there have to be enough tasks. A task that is the only one to read its weights can also pack
/// them.
TaskTile all_samples(const DirectMap& map, const TaskSources& sources, index_t result_blocks, TaskCount tasks,
                     const TaskTile& tile) {
  const Extent3 &n = map.domain(), window = map.window({{0, 0, 0}, n}).extent();
  const index_t window_bytes = block_bytes * window.z * window.y * window.x * sources.batch;  // of one block
  const index_t few = plan::nest_few_tasks_per_core * tasks.machine.cores;
  const index_t sets = ceil_div(result_blocks, 2), columns = 2 * std::max<index_t>(1, sets / few);
  const index_t groups = ceil_div(result_blocks, columns);

  const index_t column_bytes = block_bytes * n.z * n.y * n.x * sources.batch +
                               sources.weight_bytes / result_blocks * sources.held / sources.blocks;
  const bool fits = 2 * (window_bytes * sources.held + columns * column_bytes) <= tasks.machine.usable_l2_bytes;
  const bool exceeds_l2 = sources.weight_bytes > tasks.machine.usable_l2_bytes;
  const index_t parts = sources.batch * parts_of_sample(map, tile);
  const index_t groups_of_tile = ceil_div(result_blocks, tile.columns);
  const bool reads_less =
      window_bytes * sources.blocks * (groups - groups_of_tile) < sources.weight_bytes * (parts - 1);
  const bool whole = sources.batch > 1 && groups >= few && fits && exceeds_l2 && reads_less;
  return whole ? TaskTile{n, columns, true} : tile;
}

/// Returns the task that computes all voxels of a sample, or `split` if that one is better. Each part of a sample reads
/// all weights, which takes long if they exceed their share of the L3. Each group of columns reads all sources. The
/// data of a step have to fit into half of the L2, and there have to be enough tasks.
TaskTile whole_sample(const DirectMap& map, const TaskSources& sources, const ResultBlocks& results, TaskCount tasks,
                      const TaskTile& split) {
  const Extent3 &n = map.domain(), window = map.window({{0, 0, 0}, n}).extent();
  const index_t window_bytes = block_bytes * window.z * window.y * window.x;  // of one block
  const index_t few = plan::nest_few_tasks_per_core * tasks.machine.cores;
  const index_t sets = ceil_div(results.count, results.together);
  const index_t sets_of_task = std::max<index_t>(1, sets / ceil_div(few, sources.batch));
  const TaskTile whole{n, std::min(results.count, results.together * sets_of_task)};
  const index_t groups = ceil_div(sets, sets_of_task);

  const index_t column_bytes =
      block_bytes * n.z * n.y * n.x + sources.weight_bytes / results.count * sources.held / sources.blocks;
  const bool fits = 2 * (window_bytes * sources.held + whole.columns * column_bytes) <= tasks.machine.usable_l2_bytes;
  const bool exceeds_l3 = static_cast<double>(sources.weight_bytes) >
                          plan::usable_l3_share * static_cast<double>(tasks.machine.usable_l3_bytes);
  const bool reads_less =
      window_bytes * sources.blocks * groups < sources.weight_bytes * (parts_of_sample(map, split) - 1);
  return sources.batch * groups >= few && fits && exceeds_l3 && reads_less ? whole : split;
}

/// Builds a nest loop by loop. Dimensions of one iteration have no loop.
class NestBuilder {
 public:
  explicit NestBuilder(const plan::Extents& extent) : extent_(extent), left_(extent) {}

  /// Adds a loop, if it has more than one iteration, that runs in steps of `step`.
  void add(Dim dim, index_t step, bool parallel = false, bool separate = false) {
    index_t& left = left_[static_cast<std::size_t>(dim)];
    if (step >= left) return;
    nest_.loops.push_back({.dim = dim, .extent = label(dim), .parallel = parallel, .separate = separate});
    left = step;
  }
  /// Adds the loop over what is left of a dimension, in single iterations.
  void add_rest(Dim dim) {
    if (left_[static_cast<std::size_t>(dim)] > 1) nest_.loops.push_back({.dim = dim, .extent = label(dim)});
  }
  void begin_microkernel() { nest_.microkernel = nest_.loops.size(); }
  LoopNest take() {
    if (nest_.loops.size() == nest_.microkernel) nest_.loops.push_back({.dim = Dim::x});
    return std::move(nest_);
  }

 private:
  index_t label(Dim dim) const {
    const auto i = static_cast<std::size_t>(dim);
    return left_[i] == extent_[i] ? Loop::all : left_[i];
  }

  plan::Extents extent_, left_;
  LoopNest nest_;
};

/// Returns the taps that a product sums, along each axis: whole rows, planes or boxes.
Extent3 taps_of_product(const Extent3& taps, index_t steps) {
  Extent3 box = taps;
  for (int axis = 0; axis < 3 && box.z * box.y * box.x > steps; ++axis) {
    const index_t others = box.z * box.y * box.x / box[axis];
    box[axis] = even(taps[axis], std::max<index_t>(1, steps / others));
  }
  return box;
}

/// Returns whether neighbouring results of a row read the same voxels with other taps, so that a row of `taps` loads
/// each voxel once for all taps. If voxels lie twice as far apart as the taps, few are shared, and single taps are
/// faster.
bool shares_voxels(const ConvProblem& problem, const DirectMap& map, index_t taps) {
  const index_t stride = problem.stride.x, dilation = problem.dilation.x;
  if (map.target_step().x > 1) return taps != 4 && taps <= most_row_taps && dilation == std::gcd(stride, dilation);
  return stride == dilation && taps >= 2 && taps != 4 && taps <= most_row_taps;
}

/// Returns the voxels of the shortest piece if a row of results is divided into pieces of at most `most`.
index_t shortest_piece(const DirectMap& map, index_t most) {
  const index_t row = ceil_div(map.domain().x, map.target_step().x);
  return row / ceil_div(row, most);
}

/// Returns whether products of two columns sum rows of `taps`. They read voxels of blocks that lie side by side, and
/// pieces of rows are so long that steps do not take much longer than their multiply-adds.
bool sums_pairs_of_columns(const DirectMap& map, index_t taps) {
  constexpr index_t least_voxels = 7;
  return map.source_step().x == 1 && shortest_piece(map, plan::most_row_voxels(2, taps)) >= least_voxels;
}

/// Returns whether products compute four blocks of results together, if they sum single taps. Pieces of rows are so
/// long that the registers are well used, and the kernels know how far apart the voxels lie.
bool suits_four_columns(const DirectMap& map, index_t result_blocks) {
  constexpr index_t least_voxels = 5;
  return result_blocks >= 4 && map.source_step().x <= 2 &&
         shortest_piece(map, plan::most_row_voxels(4)) >= least_voxels;
}

/// Returns whether products could compute samples together: more of them than a row has voxels. Samples of a single
/// channel are computed one after the other, and kernels of one voxel read whole planes of plain tensors as rows. A
/// task holds the results of all samples, and lists of passes for each voxel.
bool suits_sample_rows(const ConvProblem& problem, const DirectMap& map, index_t source_channels,
                       const MachineModel& machine) {
  constexpr index_t most_voxels = 512;
  const index_t voxels = map.domain().volume();
  const bool planes_are_rows = problem.kernel.volume() == 1 && voxels > 1 && problem.x_layout == Layout::plain &&
                               problem.y_layout == Layout::plain;
  return source_channels > 1 && !planes_are_rows && voxels <= most_voxels &&
         problem.batch > ceil_div(map.domain().x, map.target_step().x) &&
         2 * block_bytes * problem.batch * voxels <= static_cast<index_t>(machine.usable_l2_bytes);
}

LoopNest voxel_nest(const ConvProblem& problem, Direction direction, const DirectMap& map, TaskCount tasks,
                    const Variant& variant) {
  Extent3 taps{1, 1, 1};
  for (const DirectPhase& phase : map.phases()) {
    for (int axis = 0; axis < 3; ++axis) taps[axis] = std::max(taps[axis], phase.count[axis]);
  }
  const Extent3 step = map.target_step(), results = map.domain() + step - Extent3::all(1);
  const plan::Extents extent{problem.batch,
                             problem.out_channels,
                             problem.in_channels,
                             results.z / step.z,
                             results.y / step.y,
                             results.x / step.x,
                             taps.z,
                             taps.y,
                             taps.x};
  const index_t block = channel_block(problem.type);
  const bool forward = direction == Direction::forward;
  const Dim lanes = forward ? Dim::k : Dim::c, terms = forward ? Dim::c : Dim::k;
  const index_t result_blocks = ceil_div(forward ? problem.out_channels : problem.in_channels, block);
  const index_t source_channels = forward ? problem.in_channels : problem.out_channels;
  const index_t source_blocks = ceil_div(source_channels, block);
  const index_t held = std::clamp<index_t>(variant.steps / problem.kernel.volume(), 1, source_blocks);
  // The only channel of a plain tensor is read as rows.
  const bool reads_rows = forward && problem.in_channels == 1 && problem.x_layout == Layout::plain;
  const index_t source_bytes = reads_rows ? static_cast<index_t>(size_of(problem.type)) : held * block_bytes;
  // A product of few terms sums more taps.
  const Extent3 product = taps_of_product(variant.single_planes ? Extent3{1, taps.y, taps.x} : taps,
                                          variant.steps * block / std::min(block, source_channels));
  const bool rows = variant.tap_rows && product.x == taps.x && shares_voxels(problem, map, taps.x) &&
                    (result_blocks == 1 || (source_channels > 1 && sums_pairs_of_columns(map, taps.x)));
  const bool fours = variant.four_columns && !rows && source_channels > 1 && suits_four_columns(map, result_blocks);
  index_t together = fours ? 4 : 2;
  const ResultBlocks columns{result_blocks, together};
  TaskTile tile = choose_tasks(map, problem.batch, source_bytes, columns, tasks, variant);
  if (variant.whole_samples) {
    const auto weight_bytes = static_cast<index_t>(plan::packed_weight_bytes(problem));
    const TaskSources sources{problem.batch, source_blocks, held, weight_bytes};
    tile = whole_sample(map, sources, columns, tasks, tile);
    tile = all_samples(map, sources, result_blocks, tasks, tile);
    if (tile.all_samples) together = 2;
  }
  index_t samples = 1;  // that a task holds at once
  if (variant.sample_rows) {
    // Each task stages all sources, so there are no more tasks than needed.
    const index_t sets = ceil_div(result_blocks, together);
    const index_t few = std::min(tasks.wanted, plan::nest_few_tasks_per_core * tasks.machine.cores);
    tile = {map.domain(), together * std::max<index_t>(1, sets / few), true};
    const Extent3 window = map.window({{0, 0, 0}, map.domain()}).extent();
    const index_t sample_bytes = held * block_bytes * window.z * window.y * window.x;
    samples = even(problem.batch, std::max(plan::most_row_voxels(together),
                                           static_cast<index_t>(tasks.machine.usable_l2_bytes) / 2 / sample_bytes));
  }
  NestBuilder nest(extent);
  if (!tile.all_samples) nest.add(Dim::n, 1, true);
  nest.add(lanes, tile.columns * block, true);
  nest.add(Dim::z, ceil_div(tile.extent.z, step.z), true);
  nest.add(Dim::y, ceil_div(tile.extent.y, step.y), true);
  if (variant.sample_rows) nest.add(Dim::n, samples);
  nest.add(terms, held * block);
  if (!variant.sample_rows) nest.add(Dim::n, 1);
  nest.add(Dim::kz, product.z);
  nest.add(Dim::ky, product.y);
  nest.add(Dim::kx, product.x);
  if (!variant.columns_inside) nest.add(lanes, together * block);
  nest.add(Dim::z, 1);
  nest.add(Dim::y, 1);
  nest.add(lanes, together * block);
  const index_t most = plan::most_row_voxels(std::min(together, result_blocks), rows ? taps.x : 1);
  nest.add(Dim::x, variant.sample_rows ? 1 : most);
  if (variant.sample_rows) nest.add(Dim::n, most);
  nest.begin_microkernel();
  nest.add(terms, block);
  nest.add_rest(Dim::kz);
  nest.add_rest(Dim::ky);
  if (!rows) nest.add_rest(Dim::kx);
  nest.add_rest(terms);
  if (rows) nest.add_rest(Dim::kx);
  nest.add_rest(Dim::x);
  nest.add_rest(Dim::n);
  nest.add_rest(lanes);
  return nest.take();
}

/// Divides an axis of `n` into at most `most` ranges of whole pieces. Returns the length of a range.
index_t range_of_pieces(index_t n, index_t piece, index_t most) {
  const index_t pieces = ceil_div(n, piece);
  return piece * ceil_div(pieces, std::min(pieces, std::max<index_t>(1, most)));
}

/// Returns the voxels of a piece of the weight gradient, of which the first ones are the usual choice: both sides of a
/// piece should stay in the L1, and the rows of a single channel take little of it. Longer sums would have more
/// rounding error.
std::array<index_t, 3> piece_sizes(const ConvProblem& convolution) {
  const bool reads_rows = convolution.in_channels == 1 && convolution.x_layout == Layout::plain;
  if (reads_rows) return {512, 256, 128};
  return {256, 512, 128};
}

/// Returns the nest of the weight gradient: parts with sums of their own, groups of channel blocks, and pieces of whole
/// rows, or of one voxel of several samples (`sample_rows`).
LoopNest weight_nest(const ConvProblem& problem, index_t tasks, index_t most_piece_voxels, bool sample_rows = false) {
  const plan::Sides sides(problem);
  const ConvProblem& p = sides.convolution();
  const Extent3 n = p.output(), &taps = p.kernel;
  const index_t block = channel_block(p.type);
  const index_t in_blocks = ceil_div(p.in_channels, block), out_blocks = ceil_div(p.out_channels, block);
  Extent3 piece{1, even(n.y, most_piece_voxels / n.x), n.x};
  if (piece.y == n.y) piece.z = even(n.z, most_piece_voxels / (n.x * n.y));
  if (sample_rows) piece = {1, 1, 1};
  const index_t sums = in_blocks * out_blocks * block * block_bytes * p.kernel.volume();
  index_t parts = std::min({plan::nest_most_parts, ceil_div(p.batch * n.z * n.y * n.x, plan::nest_part_voxels),
                            plan::nest_part_bytes / sums});
  const index_t part_samples = ceil_div(p.batch, std::clamp<index_t>(parts, 1, p.batch));
  parts /= ceil_div(p.batch, part_samples);
  const index_t part_z = range_of_pieces(n.z, piece.z, parts);
  parts /= ceil_div(n.z, part_z);
  const index_t part_y = range_of_pieces(n.y, piece.y, parts);
  const index_t all_parts = ceil_div(p.batch, part_samples) * ceil_div(n.z, part_z) * ceil_div(n.y, part_y);
  const index_t out_pairs = ceil_div(out_blocks, 2);
  index_t in_groups = 1, out_groups = 1;  // tasks per part
  while (all_parts * in_groups * out_groups < tasks) {
    const bool split_out = out_pairs / out_groups >= in_blocks / in_groups && out_groups < out_pairs;
    if (!split_out && in_groups >= in_blocks) break;
    index_t& groups = split_out ? out_groups : in_groups;
    groups = std::min(2 * groups, split_out ? out_pairs : in_blocks);
  }
  const Dim lanes = problem.transposed ? Dim::c : Dim::k, terms = problem.transposed ? Dim::k : Dim::c;
  NestBuilder nest({p.batch, problem.out_channels, problem.in_channels, n.z, n.y, n.x, taps.z, taps.y, taps.x});
  nest.add(Dim::n, part_samples, true, true);
  nest.add(Dim::z, part_z, true, true);
  nest.add(Dim::y, part_y, true, true);
  const index_t lane_step = 2 * block * ceil_div(out_pairs, out_groups),
                term_step = block * ceil_div(in_blocks, in_groups);
  nest.add(Dim::k, lanes == Dim::k ? lane_step : term_step, true);
  nest.add(Dim::c, lanes == Dim::c ? lane_step : term_step, true);
  nest.add(Dim::n, sample_rows ? even(part_samples, most_piece_voxels) : 1);
  nest.add(Dim::z, piece.z);
  nest.add(Dim::y, piece.y);
  nest.add(Dim::x, piece.x);
  nest.add(terms, block);
  nest.add(lanes, 2 * block);
  nest.add(Dim::kz, 1);
  nest.add(Dim::ky, 1);
  nest.add(Dim::kx, 1);
  nest.begin_microkernel();
  nest.add_rest(Dim::n);
  nest.add_rest(Dim::z);
  nest.add_rest(Dim::y);
  nest.add_rest(Dim::x);
  nest.add_rest(terms);
  nest.add_rest(lanes);
  return nest.take();
}

/// Returns the number of tasks in the first space, or 1 if there is nothing to compute.
double tasks_in(const LoopNest& nest, const std::vector<plan::NestSpace>& spaces) {
  return spaces.empty() ? 1 : tasks_of(nest, spaces.front());
}

}  // namespace

double tasks_of(const LoopNest& nest, const plan::NestSpace& space) {
  const std::vector<plan::BoundLoop> loops = plan::bind(nest, space);
  double tasks = 1;
  for (std::size_t i = 0; i < loops.size(); ++i) {
    if (nest.loops[i].parallel || nest.loops[i].separate) tasks *= static_cast<double>(loops[i].trips());
  }
  return tasks;
}

std::vector<LoopNest> candidate_nests(const ConvProblem& problem, Direction direction, const MachineModel& machine) {
  const index_t tasks = wanted_tasks(problem, direction, machine);
  std::vector<LoopNest> nests;
  const auto add = [&](LoopNest nest) {
    if (std::find(nests.begin(), nests.end(), nest) == nests.end()) nests.push_back(std::move(nest));
  };
  const plan::Sides sides(problem);
  if (direction == Direction::backward_weights) {
    const index_t wanted = std::max(tasks / 2, plan::nest_least_tasks_per_core * machine.cores);
    for (const index_t voxels : piece_sizes(sides.convolution())) add(weight_nest(problem, wanted, voxels));
    const ConvProblem& p = sides.convolution();
    constexpr index_t most_samples = 256;  // longer sums would have more rounding error
    // Windows of neighbouring results would be copied once for each result.
    const bool one_voxel = p.output() == Extent3{1, 1, 1};
    if (one_voxel && p.in_channels > 1 && p.batch > 1) add(weight_nest(problem, wanted, most_samples, true));
    return nests;
  }
  const DirectMap map(sides.convolution(), sides.direction(direction), Taps::counted);
  const bool tap_rows = plan::wide_vectors(machine);
  // Neighbouring results of a stride along Z share few planes. Products of the taps of one plane then read fewer voxels
  // again, and their weights stay in the L1. If there are few channels, such products would be short.
  const bool forward = direction == Direction::forward;
  const bool strided =
      map.source_step().z > 1 && (forward ? problem.in_channels : problem.out_channels) >= channel_block(problem.type);
  const Variant usual{.single_planes = strided, .tap_rows = tap_rows, .four_columns = tap_rows};
  Variant first = usual, other = usual, single_taps = usual;
  first.whole_samples = true;
  strided ? other.single_planes = false : other.steps /= 2;
  single_taps.tap_rows = single_taps.four_columns = false;
  add(voxel_nest(problem, direction, map, {tasks, machine}, first));
  if (suits_sample_rows(problem, map, forward ? problem.in_channels : problem.out_channels, machine)) {
    Variant samples = usual;
    samples.sample_rows = true;
    samples.tap_rows = samples.four_columns = false;
    add(voxel_nest(problem, direction, map, {tasks, machine}, samples));
  }
  for (const bool columns_inside : {false, true}) {
    for (const bool all_columns : {false, true}) {
      for (const index_t bytes : {384 << 10, 192 << 10, 96 << 10}) {
        for (Variant variant : {usual, other, single_taps}) {
          variant.task_bytes = bytes;
          variant.all_columns = all_columns;
          variant.columns_inside = columns_inside;
          add(voxel_nest(problem, direction, map, {tasks, machine}, variant));
        }
      }
    }
  }
  // Neighbouring tasks stage voxels that both read. Fewer tasks stage fewer voxels. Nothing else differs, so a nest of
  // them comes first even if it gains little.
  const index_t few = plan::nest_few_tasks_per_core * machine.cores;
  const bool split = nests.front() == voxel_nest(problem, direction, map, {tasks, machine}, usual);
  if (split && few < tasks) {
    LoopNest longer = voxel_nest(problem, direction, map, {few, machine}, usual);
    const auto seconds = [&](const LoopNest& nest) {
      return plan::nest_cost(nest, problem, direction, machine).seconds();
    };
    const std::vector<plan::NestSpace> spaces = plan::spaces(problem, direction);
    const bool enough = tasks_in(longer, spaces) >= std::min(static_cast<double>(few), tasks_in(nests.front(), spaces));
    if (enough && plan::nest_slightly_faster * seconds(longer) < seconds(nests.front())) {
      nests.erase(std::remove(nests.begin(), nests.end(), longer), nests.end());
      nests.insert(nests.begin(), std::move(longer));
    } else {
      add(std::move(longer));
    }
  }
  return nests;
}

std::vector<RankedNest> rank_nests(const ConvProblem& problem, Direction direction, const MachineModel& machine) {
  std::vector<RankedNest> ranked;
  std::vector<LoopNest> nests = candidate_nests(problem, direction, machine);
  const std::vector<plan::NestSpace> spaces = plan::spaces(problem, direction);
  // The model knows one core. A nest with too few tasks would leave others idle.
  const index_t wanted =
      std::min(wanted_tasks(problem, direction, machine), plan::nest_few_tasks_per_core * machine.cores);
  const double needed = std::min(static_cast<double>(wanted), tasks_in(nests.front(), spaces));
  for (LoopNest& nest : nests) {
    if (tasks_in(nest, spaces) < needed) continue;
    const double seconds = plan::nest_cost(nest, problem, direction, machine).seconds();
    ranked.push_back({std::move(nest), seconds});
  }
  const double first = ranked.front().seconds;
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const RankedNest& a, const RankedNest& b) { return a.seconds < b.seconds; });
  const auto it =
      std::find_if(ranked.begin(), ranked.end(), [&](const RankedNest& nest) { return nest.seconds == first; });
  if (first <= plan::nest_clearly_faster * ranked.front().seconds) std::rotate(ranked.begin(), it, it + 1);
  return ranked;
}

Nests choose_nests(const ConvProblem& problem, const MachineModel& machine) {
  Nests nests;
  for (const Direction direction : plan::directions) {
    nests[static_cast<std::size_t>(direction)] = rank_nests(problem, direction, machine).front().nest;
  }
  return nests;
}

}  // namespace convolume::conv
