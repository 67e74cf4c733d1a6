#include "plan/nest/product_loops.hpp"

#include <algorithm>

namespace convolume::plan {
namespace {

constexpr index_t pieces_of(index_t all, index_t piece) noexcept { return (all + piece - 1) / piece; }

/// Returns the extent of the outermost loop over a dimension, or 1.
index_t extent_of(std::span<const BoundLoop> loops, Dim dim) {
  const auto found = std::find_if(loops.begin(), loops.end(), [&](const BoundLoop& loop) { return loop.dim == dim; });
  return found == loops.end() ? 1 : found->extent;
}

/// Returns how many taps of a row the loops of a microkernel sum at each term of a block.
index_t row_taps(std::span<const BoundLoop> loops, const ProductChannels& channels) {
  bool within_block = false;
  for (const BoundLoop& loop : loops) {
    if (loop.trips() == 1) continue;
    if (within_block && loop.dim == Dim::kx && loop.step == 1) return loop.extent;
    within_block = within_block || (loop.dim == channels.terms && loop.extent <= channels.block);
  }
  return 1;
}

/// Returns whether a row has as few pieces of `piece` results as a product makes of it. `around` are the loops around
/// microkernels. If the innermost ones are over the row, the outermost of these says how long it is.
bool runs_rows(std::span<const BoundLoop> loops, const std::vector<std::size_t>& around, Dim row, index_t piece,
               index_t longest) {
  index_t all = extent_of(loops, row);
  for (auto i = around.rbegin(); i != around.rend() && loops[*i].dim == row; ++i) all = loops[*i].extent;
  return pieces_of(all, piece) <= pieces_of(all, longest);
}

}  // namespace

std::vector<std::size_t> loops_around_products(std::span<const BoundLoop> loops, std::size_t first,
                                               std::size_t microkernel, const ProductChannels& channels) {
  std::vector<std::size_t> around;
  for (std::size_t i = first; i < microkernel; ++i) {
    if (loops[i].trips() > 1) around.push_back(i);
  }
  const auto run = [&](Dim dim) {
    while (!around.empty() && loops[around.back()].dim == dim) around.pop_back();
  };
  const std::span<const BoundLoop> kernel = loops.subspan(microkernel);
  const bool of_samples = extent_of(kernel, Dim::n) > 1;
  const index_t lane_blocks = pieces_of(extent_of(kernel, channels.lanes), channels.block);
  const Dim row = of_samples ? Dim::n : Dim::x;
  const index_t longest =
      most_row_voxels(std::max<index_t>(2, lane_blocks), lane_blocks == 1 ? 1 : row_taps(kernel, channels));
  const bool whole_rows = runs_rows(loops, around, row, extent_of(kernel, row), longest);
  if (whole_rows) run(row);
  const bool piece_of_row = !whole_rows && (around.empty() || loops[around.back()].dim == Dim::x);
  if (of_samples ? !whole_rows : piece_of_row) return around;
  if (!of_samples) {
    run(Dim::y);
    run(Dim::z);
  }
  const index_t all_lane_blocks = pieces_of(extent_of(loops, channels.lanes), channels.block);
  if (lane_blocks >= std::min<index_t>(2, all_lane_blocks)) run(channels.lanes);
  return around;
}

}  // namespace convolume::plan
