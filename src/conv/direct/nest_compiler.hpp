// What the compilers of nests share. Included by voxel_nest.cpp and weight_nest.cpp only.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "conv/direct/direct_nest.hpp"

namespace convolume::conv {

/// A nest whose channels are named as the engine sees them: `k` are lanes, `c` are terms (channels that lie in memory
/// in blocks beside them).
class NestCompiler {
 protected:
  using Dim = plan::Dim;
  using Loop = plan::Loop;

  NestCompiler(const plan::LoopNest& nest, bool swap_channels, index_t block)
      : block_(block), text_(to_string(nest)), names_(nest), nest_(nest) {
    for (Loop& loop : nest_.loops) {
      if (swap_channels && loop.dim == Dim::k) {
        loop.dim = Dim::c;
      } else if (swap_channels && loop.dim == Dim::c) {
        loop.dim = Dim::k;
      }
    }
  }

  static constexpr std::size_t index_of(Dim dim) { return static_cast<std::size_t>(dim); }

  /// Binds the loops to space_. Phases that no tap reaches are results too, but have no part in the spaces of a
  /// direction. So the outermost loops cover all of space_, and dimensions without a loop get one.
  void bind_all() {
    std::array<bool, plan::all_dims.size()> seen{};
    for (Loop& loop : nest_.loops) {
      if (!seen[index_of(loop.dim)]) loop.extent = Loop::all;
      seen[index_of(loop.dim)] = true;
    }
    for (const Dim dim : plan::all_dims) {
      if (seen[index_of(dim)] || extent(dim) == 1) continue;
      for (plan::LoopNest* nest : {&nest_, &names_}) {
        nest->loops.insert(nest->loops.begin() + static_cast<std::ptrdiff_t>(nest->microkernel++), Loop{.dim = dim});
      }
    }
    loops_ = plan::bind(nest_, space_);
  }

  index_t extent(Dim dim) const { return space_.of(dim); }
  bool trivial(std::size_t i) const { return loops_[i].trips() == 1; }
  [[noreturn]] void refuse(std::size_t i, const std::string& why) const {
    throw Unsupported(fmt::format("nest '{}': loop {} '{}': direct {}", text_, i + 1, to_string(names_.loops[i]), why));
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Unsupported(fmt::format("nest '{}': direct {}", text_, why));
  }

  /// Returns the iterations of a dimension that the loops from `depth` on cover.
  index_t inside(Dim dim, std::size_t depth) const {
    index_t covered = extent(dim);
    for (std::size_t i = 0; i < depth; ++i) {
      if (loops_[i].dim == dim) covered = loops_[i].step;
    }
    return covered;
  }

  index_t blocks(index_t channels) const { return ceil_div(channels, block_); }

  /// Checks that a loop over channels cuts them between blocks.
  void check_blocks(std::size_t i) const {
    const plan::BoundLoop& loop = loops_[i];
    if (loop.dim != Dim::k && loop.dim != Dim::c) return;
    if (loop.step % block_ == 0 || loop.step >= loop.extent) return;
    refuse(i, fmt::format("computes channels in blocks of {0}, and this loop has steps of {1}; use multiples of {0}",
                          block_, loop.step));
  }

  /// Returns the channels or voxels of the loop over a dimension that stands last, or last but for loops of one
  /// iteration, before `end`, which then becomes the position of this loop.
  index_t read_last(Dim dim, std::size_t& end) const {
    std::size_t i = end;
    while (i > nest_.microkernel && trivial(i - 1) && loops_[i - 1].dim != dim) --i;
    if (i > nest_.microkernel && loops_[i - 1].dim == dim) end = i - 1;
    return inside(dim, end);
  }

  /// Checks that a product computes one or two blocks of lanes, or four of them if `fours`. Returns the number of
  /// blocks.
  index_t check_lanes(index_t lanes, bool fours) const {
    const bool known = blocks(lanes) <= 2 || (fours && blocks(lanes) == 4);
    if (known && (lanes % block_ == 0 || lanes == extent(Dim::k))) return blocks(lanes);
    refuse(fmt::format("has no microkernel of {} result channels; its microkernels end with loops over {} of them",
                       lanes,
                       fours ? fmt::format("{}, {} or {}", block_, 2 * block_, 4 * block_)
                             : fmt::format("{} or {}", block_, 2 * block_)));
  }

  /// Checks that the loops of a task around the microkernel cut channels between blocks.
  void check_task_loops(std::size_t first) const {
    for (std::size_t i = first; i < nest_.microkernel; ++i) check_blocks(i);
  }
  TaskLoop task_loop(std::size_t i) const {
    const bool channels = loops_[i].dim == Dim::k || loops_[i].dim == Dim::c;
    return {loops_[i].dim, channels ? blocks(loops_[i].step) : loops_[i].step};
  }

  index_t block_;
  std::string text_;
  plan::LoopNest names_, nest_;
  plan::NestSpace space_{};
  std::vector<plan::BoundLoop> loops_;
};

}  // namespace convolume::conv
