// Compiles nests that yield voxels.
#include <algorithm>

#include "conv/direct/nest_compiler.hpp"
#include "plan/nest/product_loops.hpp"

namespace convolume::conv {
namespace {

using plan::Direction;
using plan::LoopNest;

/// Reads a nest from the outside to the inside.
class VoxelCompiler : NestCompiler {
 public:
  VoxelCompiler(const LoopNest& nest, const ConvProblem& p, Direction direction, const DirectMap& map)
      : NestCompiler(nest, direction == Direction::backward_data, channel_block(p.type)),
        step_(map.target_step()),
        domain_(map.domain()) {
    const bool forward = direction == Direction::forward;
    space_.extent[index_of(Dim::n)] = p.batch;
    space_.extent[index_of(Dim::k)] = forward ? p.out_channels : p.in_channels;
    space_.extent[index_of(Dim::c)] = forward ? p.in_channels : p.out_channels;
    Extent3& taps = result_.taps;
    for (const DirectPhase& phase : map.phases()) {
      for (int axis = 0; axis < 3; ++axis) taps[axis] = std::max(taps[axis], phase.count[axis]);
    }
    for (int axis = 0; axis < 3; ++axis) {
      const auto i = static_cast<std::size_t>(axis);
      space_.extent[index_of(Dim::z) + i] = ceil_div(domain_[axis], step_[axis]);
      space_.extent[index_of(Dim::kz) + i] = taps[axis];
    }
    bind_all();
  }

  VoxelNest compile() {
    read_tasks();
    read_microkernel();
    read_walk();
    set_begins();
    return std::move(result_);
  }

 private:
  void read_tasks() {
    while (first_ < loops_.size() && nest_.loops[first_].parallel) check_blocks(first_++);
    const Extent3 tile{inside(Dim::z, first_), inside(Dim::y, first_), extent(Dim::x)};
    RegionGrid& grid = result_.grid;
    grid.extent = {std::min(domain_.z, tile.z * step_.z), std::min(domain_.y, tile.y * step_.y), domain_.x};
    grid.count = {ceil_div(domain_.z, grid.extent.z), ceil_div(domain_.y, grid.extent.y), 1};
    grid.columns = blocks(inside(Dim::k, first_));
    grid.column_groups = ceil_div(blocks(extent(Dim::k)), grid.columns);
    result_.samples = inside(Dim::n, first_);
  }

  /// Reads the loops behind the bar: sums in any order, then a block of terms, voxels of a row, and one, two or four
  /// blocks of lanes.
  void read_microkernel() {
    std::size_t end = loops_.size();
    product_lanes_ = check_lanes(read_last(Dim::k, end), true);
    result_.product_columns = product_lanes_;
    read_row_of_results(end);
    for (std::size_t i = nest_.microkernel; i < end; ++i) {
      if (trivial(i)) continue;
      const Dim dim = loops_[i].dim;
      if (dim != Dim::c && dim < Dim::kz) {
        refuse(i, fmt::format("sums over channels and taps behind '|' and has no loop over '{}' there; write it before "
                              "'|'",
                              plan::name_of(names_.loops[i].dim)));
      }
      const bool within_block = dim == Dim::c && loops_[i].extent <= block_;
      if (within_block) {
        read_row(i + 1, end);
        break;
      }
      if (dim == Dim::c && loops_[i].step % block_ != 0 && loops_[i].step != 1) check_blocks(i);
      const bool single = dim == Dim::c && loops_[i].step < block_;
      for (std::size_t inner = i + 1; single && inner < end; ++inner) {
        if (!trivial(inner)) refuse(inner, "sums the terms of a block innermost; write the loop further out");
      }
      result_.sums.push_back({dim, dim == Dim::c ? std::max<index_t>(1, loops_[i].step / block_) : loops_[i].step});
    }
    const index_t terms = inside(Dim::c, nest_.microkernel);
    if (terms % block_ != 0 && terms != extent(Dim::c)) {
      refuse(fmt::format("has no microkernel of {} summed channels; use a multiple of {}, or all", terms, block_));
    }
    result_.product_blocks = blocks(terms);
  }

  /// Reads how many results a product computes together: voxels of a row, or the same voxel of several samples.
  void read_row_of_results(std::size_t& end) {
    const index_t voxels = read_last(Dim::x, end);
    const index_t samples = read_last(Dim::n, end);
    result_.rows_of_samples = samples > 1;
    if (samples > 1 && voxels > 1) {
      refuse(
          fmt::format("computes {} voxels of a row or {} samples together, not both; write one of the loops before "
                      "'|'",
                      voxels, samples));
    }
    if (samples > 1 && extent(Dim::c) == 1) {
      refuse("computes samples of a single channel one after the other; write the loop over 'n' before '|'");
    }
    const index_t results = std::max(voxels, samples), most = plan::most_row_voxels(product_lanes_);
    if (results > most) {
      refuse(fmt::format("has no microkernel of {} {}; its microkernels have at most {}", results,
                         samples > 1 ? "samples" : "voxels of a row", most));
    }
  }

  /// Reads the loops inside of the terms of a block: none, or one over a row of taps.
  void read_row(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (trivial(i)) continue;
      if (loops_[i].dim != Dim::kx || loops_[i].step != 1) {
        refuse(i, "sums the terms of a block innermost, but for a row of taps; write the loop further out");
      }
      if (product_lanes_ > 2) {
        refuse(i, fmt::format("sums rows of taps for at most {} result channels", 2 * block_));
      }
      if (result_.rows_of_samples) refuse(i, "sums rows of taps for voxels of a row, not for samples");
      if (loops_[i].extent > most_row_taps) {
        refuse(i, fmt::format("sums at most {} taps of a row inside of the terms of a block", most_row_taps));
      }
      result_.row_taps = loops_[i].extent;
    }
  }

  void read_walk() {
    check_task_loops(first_);
    const std::vector<std::size_t> loops =
        plan::loops_around_products(loops_, first_, nest_.microkernel, {.block = block_});
    result_.held_blocks = blocks(extent(Dim::c));
    result_.held_samples = result_.rows_of_samples ? result_.samples : 1;
    bool outermost = true;
    for (const std::size_t i : loops) {
      result_.walk.push_back(task_loop(i));
      const TaskLoop& loop = result_.walk.back();
      if (loop.dim == Dim::c && outermost) result_.held_blocks = loop.step;
      if (loop.dim == Dim::n) result_.held_samples = loop.step;
      outermost = outermost && loop.dim == Dim::n;
    }
    result_.sums_once = std::none_of(result_.walk.begin(), result_.walk.end(),
                                     [](const TaskLoop& loop) { return loop.dim == Dim::c || loop.dim >= Dim::kz; });
  }

  void set_begins() {
    constexpr std::array dims{Dim::z, Dim::y, Dim::x, Dim::kz, Dim::ky, Dim::kx};
    for (std::size_t i = 0; i < dims.size(); ++i) {
      std::vector<index_t> steps;
      for (const TaskLoop& loop : result_.walk) {
        if (loop.dim == dims[i]) steps.push_back(loop.step);
      }
      append_begins(0, inside(dims[i], first_), steps, 0, result_.begins[i]);
    }
  }
  static void append_begins(index_t begin, index_t end, const std::vector<index_t>& steps, std::size_t level,
                            std::vector<index_t>& begins) {
    if (level == steps.size()) {
      begins.push_back(begin);
      return;
    }
    for (index_t i = begin; i < end; i += steps[level]) {
      append_begins(i, std::min(end, i + steps[level]), steps, level + 1, begins);
    }
  }

  Extent3 step_{}, domain_{};
  std::size_t first_ = 0;  // loop inside of the tasks
  index_t product_lanes_ = 1;
  VoxelNest result_;
};

/// Iterations from begin to before end.
struct Range {
  index_t begin = 0, end = 0;
};

/// Appends the steps of a phase in the order of the loops `sums` from `level` on. The ranges are those of term blocks
/// and of the taps along each axis.
void append_steps(const std::vector<TaskLoop>& sums, std::size_t level, const DirectPhase& phase,
                  std::array<Range, 4>& range, std::vector<StepPlace>& steps) {
  if (level == sums.size()) {
    const index_t tap = (range[1].begin * phase.count.y + range[2].begin) * phase.count.x + range[3].begin;
    steps.push_back({range[0].begin, tap, range[3].end - range[3].begin});
    return;
  }
  const TaskLoop& loop = sums[level];
  constexpr auto first_tap = static_cast<std::size_t>(plan::Dim::kz);
  Range& one = range[loop.dim == plan::Dim::c ? 0 : 1 + static_cast<std::size_t>(loop.dim) - first_tap];
  const Range all = one;
  for (index_t i = all.begin; i < all.end; i += loop.step) {
    one = {i, std::min(all.end, i + loop.step)};
    append_steps(sums, level + 1, phase, range, steps);
  }
  one = all;
}

unsigned meets_first(const DirectPhase& phase, const StepPlace& step) {
  unsigned set = 0;
  for (index_t i = 0; i < step.taps; ++i) {
    const DirectTap& tap = phase.taps[static_cast<std::size_t>(step.tap + i)];
    set |= static_cast<unsigned>(tap.meets_first) << static_cast<unsigned>(i);
  }
  return set;
}

}  // namespace

std::vector<std::vector<StepPlace>> order_steps(const VoxelNest& nest, const DirectMap& map) {
  const auto tile = [&](std::size_t i, std::size_t number, index_t end) {
    const std::vector<index_t>& begins = nest.begins[i];
    return Range{begins[number], std::min(end, number + 1 < begins.size() ? begins[number + 1] : end)};
  };
  std::vector<std::vector<StepPlace>> orders;
  for (std::size_t z = 0; z < nest.begins[3].size(); ++z) {
    for (std::size_t y = 0; y < nest.begins[4].size(); ++y) {
      for (std::size_t x = 0; x < nest.begins[5].size(); ++x) {
        for (const DirectPhase& phase : map.phases()) {
          std::array<Range, 4> range{Range{0, nest.product_blocks}, tile(3, z, phase.count.z),
                                     tile(4, y, phase.count.y), tile(5, x, phase.count.x)};
          std::vector<StepPlace>& steps = orders.emplace_back();
          const bool empty = std::any_of(range.begin(), range.end(), [](const Range& r) { return r.end <= r.begin; });
          if (!empty) append_steps(nest.sums, 0, phase, range, steps);
          for (StepPlace& step : steps) step.meets_first = meets_first(phase, step);
        }
      }
    }
  }
  return orders;
}

VoxelNest compile_voxel_nest(const LoopNest& nest, const ConvProblem& problem, Direction direction,
                             const DirectMap& map) {
  return VoxelCompiler(nest, problem, direction, map).compile();
}

}  // namespace convolume::conv
