// Compiles nests of backward weights.
#include <algorithm>

#include "conv/direct/nest_compiler.hpp"
#include "plan/sides.hpp"

namespace convolume::conv {
namespace {

/// Reads a nest from the outside to the inside.
class WeightCompiler : NestCompiler {
 public:
  WeightCompiler(const plan::LoopNest& nest, const ConvProblem& problem)
      : NestCompiler(nest, problem.transposed, channel_block(problem.type)) {
    const plan::Sides sides(problem);
    const ConvProblem& p = sides.convolution();
    const Extent3 voxels = p.output();
    space_.extent[index_of(Dim::n)] = p.batch;
    space_.extent[index_of(Dim::k)] = p.out_channels;
    space_.extent[index_of(Dim::c)] = p.in_channels;
    for (int axis = 0; axis < 3; ++axis) {
      const auto i = static_cast<std::size_t>(axis);
      space_.extent[index_of(Dim::z) + i] = voxels[axis];
      space_.extent[index_of(Dim::kz) + i] = p.kernel[axis];
    }
    bind_all();
  }

  WeightNest compile() {
    read_parts();
    read_microkernel();
    read_walk();
    return std::move(result_);
  }

 private:
  void read_parts() {
    while (first_ < loops_.size() && nest_.loops[first_].separate) ++first_;
    result_.part_samples = inside(Dim::n, first_);
    result_.part_extent = {inside(Dim::z, first_), inside(Dim::y, first_), extent(Dim::x)};
    result_.part_batch = ceil_div(extent(Dim::n), result_.part_samples);
    result_.part_count = {ceil_div(extent(Dim::z), result_.part_extent.z),
                          ceil_div(extent(Dim::y), result_.part_extent.y), 1};
    while (first_ < loops_.size() && nest_.loops[first_].parallel) check_blocks(first_++);
    result_.out_blocks = blocks(inside(Dim::k, first_));
    result_.in_blocks = blocks(inside(Dim::c, first_));
    result_.out_groups = ceil_div(blocks(extent(Dim::k)), result_.out_blocks);
    result_.in_groups = ceil_div(blocks(extent(Dim::c)), result_.in_blocks);
  }

  /// Reads the loops behind the bar: voxels of a piece in the order of memory, then a block of terms, and one or two
  /// blocks of lanes.
  void read_microkernel() {
    std::size_t end = loops_.size();
    product_lanes_ = check_lanes(read_last(Dim::k, end), false);
    const index_t terms = read_last(Dim::c, end);
    if (terms > block_ || (terms < block_ && terms != extent(Dim::c))) {
      refuse(fmt::format("has no microkernel of {} channels of the high-resolution side; use {}", terms, block_));
    }
    result_.piece = {inside(Dim::z, nest_.microkernel), inside(Dim::y, nest_.microkernel),
                     inside(Dim::x, nest_.microkernel)};
    result_.piece_samples = inside(Dim::n, nest_.microkernel);
    check_samples();
    Dim before = Dim::n;
    for (std::size_t i = nest_.microkernel; i < end; ++i) {
      if (trivial(i)) continue;
      const Dim dim = loops_[i].dim;
      if (dim == Dim::n) continue;
      if (dim != Dim::z && dim != Dim::y && dim != Dim::x) {
        refuse(i, fmt::format("sums over voxels behind '|' and has no loop over '{}' there; write it before '|'",
                              plan::name_of(names_.loops[i].dim)));
      }
      if (dim <= before) refuse(i, "sums voxels in the order z y x, each loop once; write the loops in this order");
      before = dim;
    }
  }

  void check_samples() const {
    if (result_.piece_samples == 1) return;
    if (result_.piece != Extent3{1, 1, 1}) {
      refuse("sums voxels or samples behind '|', not both; write the loops over voxels before '|'");
    }
    if (extent(Dim::c) == 1) {
      refuse("sums samples of a single channel one after the other; write the loop over 'n' before '|'");
    }
  }

  void read_walk() {
    check_task_loops(first_);
    std::vector<std::size_t> loops;
    for (std::size_t i = first_; i < nest_.microkernel; ++i) {
      if (!trivial(i)) loops.push_back(i);
    }
    const auto fuse = [&](Dim dim) {
      while (!loops.empty() && loops_[loops.back()].dim == dim) loops.pop_back();
    };
    // A piece is multiplied for all pairs of channel blocks and all taps, if the innermost loops say so in this order.
    fuse(Dim::kx);
    fuse(Dim::ky);
    fuse(Dim::kz);
    if (product_lanes_ == std::min<index_t>(2, blocks(extent(Dim::k)))) fuse(Dim::k);
    if (loops.empty() || loops_[loops.back()].dim != Dim::k) fuse(Dim::c);
    for (const std::size_t i : loops) result_.walk.push_back(task_loop(i));
    const auto sums = [](const TaskLoop& loop) {
      return loop.dim != Dim::k && loop.dim != Dim::c && loop.dim < Dim::kz;
    };
    result_.one_piece = result_.parts() == 1 && std::none_of(result_.walk.begin(), result_.walk.end(), sums);
  }

  std::size_t first_ = 0;  // loop inside of the tasks
  index_t product_lanes_ = 1;
  WeightNest result_;
};

}  // namespace

WeightNest compile_weight_nest(const plan::LoopNest& nest, const ConvProblem& problem) {
  return WeightCompiler(nest, problem).compile();
}

}  // namespace convolume::conv
