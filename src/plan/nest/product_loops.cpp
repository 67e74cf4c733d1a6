#include "plan/nest/product_loops.hpp"

#include <algorithm>
namespace convolume::plan {
namespace {

constexpr index_t pieces_of(index_t all, index_t piece) noexcept { return (all + piece - 1) / piece; }

/// Returns the extent of a dimension: that of its outermost loop.
index_t extent_of(std::span<const BoundLoop> loops, Dim dim) {
  const auto found = std::find_if(loops.begin(), loops.end(), [&](const BoundLoop& loop) { return loop.dim == dim; });
  return found == loops.end() ? 1 : found->extent;
}

}  // namespace

std::vector<std::size_t> loops_around_products(std::span<const BoundLoop> loops, std::size_t first,
                                               std::size_t microkernel, const ProductTile& tile) {
  std::vector<std::size_t> around;
  for (std::size_t i = first; i < microkernel; ++i) {
    if (loops[i].trips() > 1) around.push_back(i);
  }
  const auto run = [&](Dim dim) {
    while (!around.empty() && loops[around.back()].dim == dim) around.pop_back();
  };
  const Dim row = tile.of_samples ? Dim::n : Dim::x;
  const index_t usual_results =
      most_row_voxels(std::max<index_t>(2, tile.lane_blocks), tile.lane_blocks == 1 ? 1 : tile.row_taps);
  // A product divides a row into as few pieces as possible, of nearly equal lengths.
  const index_t all_results = extent_of(loops, row);
  const bool whole_rows = pieces_of(all_results, tile.results) <= pieces_of(all_results, usual_results);
  if (whole_rows) run(row);
  const bool piece_of_row = !whole_rows && (around.empty() || loops[around.back()].dim == Dim::x);
  if (tile.of_samples ? !whole_rows : piece_of_row) return around;
  if (!tile.of_samples) {
    run(Dim::y);
    run(Dim::z);
  }
  if (tile.lane_blocks >= std::min<index_t>(2, tile.all_lane_blocks)) run(tile.lanes);
  return around;
}

}  // namespace convolume::plan
