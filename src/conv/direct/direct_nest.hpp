// What the direct engine makes of a loop nest: tasks, the loops of a task, and single products.
#pragma once

#include <array>
#include <vector>

#include "conv/direct/nest_choice.hpp"
#include "conv/taps/tap_geometry.hpp"
#include "convolume/nest.hpp"

namespace convolume::conv {

/// A loop of a task. Dimensions are those of the direction: `k` counts blocks of result channels (lanes), `c` blocks
/// of source channels (terms), and z, y and x count results of a phase.
struct TaskLoop {
  plan::Dim dim = plan::Dim::n;
  index_t step = 1;
};

/// A nest that yields voxels, y or dx.
struct VoxelNest {
  RegionGrid grid;               ///< the results of a task
  index_t samples = 1;           ///< of a task
  Extent3 taps{1, 1, 1};         ///< the most taps of a phase along each axis
  std::vector<TaskLoop> walk{};  ///< the loops of a task around products, the outermost first
  std::vector<TaskLoop> sums{};  ///< the order of the steps of a product, the outermost loop first
  index_t held_blocks = 1;       ///< term blocks whose voxels a task holds at once
  index_t held_samples = 1;      ///< samples that it holds at once
  index_t product_blocks = 1;    ///< the most term blocks of a product
  index_t product_columns = 1;   ///< lane blocks whose sums are in registers at the same time: 1, 2 or 4
  index_t row_taps = 1;          ///< the most taps of a step
  bool rows_of_samples = false;  ///< a product computes the same voxel of several samples, not voxels of a row
  bool sums_once = false;        ///< a product sums all taps and terms of its results
  /// Where the tiles of products begin, for z, y, x, kz, ky and kx, counted from the first result or tap of a task.
  std::array<std::vector<index_t>, 6> begins{};

  std::size_t tap_tiles() const noexcept { return begins[3].size() * begins[4].size() * begins[5].size(); }
};

/// A step of a sum: a tap of a block of terms, or a row of taps, of which `tap` is the first. Taps are numbered as in
/// DirectPhase::taps.
struct StepPlace {
  index_t block = 0, tap = 0, taps = 1;
  unsigned meets_first = 0;  ///< the set of its taps of which DirectTap::meets_first holds, as in DirectStep
};
/// Returns the order in which products sum: the steps of each phase, for each tile of taps. Index: tile * number of
/// phases + phase. Products of fewer blocks leave out the steps of the others.
std::vector<std::vector<StepPlace>> order_steps(const VoxelNest& nest, const DirectMap& map);

/// Compiles the nest of a direction of `problem` that yields voxels. `map` belongs to the same direction. Throws
/// Unsupported that names the loop and the reason if the engine has no such microkernel.
VoxelNest compile_voxel_nest(const plan::LoopNest& nest, const ConvProblem& problem, plan::Direction direction,
                             const DirectMap& map);

/// A nest that yields dw. Here `k` counts channel blocks of the low-resolution side (lanes), and `c` those of the
/// high-resolution side (terms).
struct WeightNest {
  Extent3 part_extent{}, part_count{};       ///< voxels of the low-resolution side with sums of their own, and parts
  index_t part_samples = 1, part_batch = 1;  ///< samples of a part, and number of parts along the batch
  index_t in_blocks = 1, out_blocks = 1;     ///< term and lane blocks of a task
  index_t in_groups = 1, out_groups = 1;     ///< tasks per part
  std::vector<TaskLoop> walk{};              ///< the loops of a task around products, the outermost first
  Extent3 piece{};                           ///< the most voxels of a product
  index_t piece_samples = 1;                 ///< the most samples of a product; if there are several, piece is a voxel
  bool one_piece = false;                    ///< there is one part, and each product sums all of its voxels

  index_t parts() const noexcept { return part_batch * part_count.z * part_count.y; }
};

/// Compiles the nest of backward weights of `problem`. Throws Unsupported as compile_voxel_nest() does.
WeightNest compile_weight_nest(const plan::LoopNest& nest, const ConvProblem& problem);

/// A nest with its estimated seconds on one core.
struct RankedNest {
  plan::LoopNest nest;
  double seconds = 0;
};

// The functions below are deterministic. `problem` must not have groups.

/// Returns the number of tasks that the parallel loops of a nest make.
double tasks_of(const plan::LoopNest& nest, const plan::NestSpace& space);
/// Returns candidates, all different, with enough tasks for the cores of the machine. The first one is fast on most
/// machines: its tasks fit an L2 of 1 MiB, or they compute whole samples, or all samples, so that weights are
/// read less often.
std::vector<plan::LoopNest> candidate_nests(const ConvProblem& problem, plan::Direction direction,
                                            const MachineModel& machine);
/// Returns the candidates, the best by estimated seconds first. The first candidate stays first unless another one is
/// faster by more than the error of the model.
std::vector<RankedNest> rank_nests(const ConvProblem& problem, plan::Direction direction, const MachineModel& machine);
/// Returns the best nest of each direction.
Nests choose_nests(const ConvProblem& problem, const MachineModel& machine);

}  // namespace convolume::conv
