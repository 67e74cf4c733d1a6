// The loops around the products of `direct`: a product runs some of the innermost ones itself.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "convolume/nest.hpp"

namespace convolume::plan {

/// Returns the most voxels of a row that a product of one, two or four blocks of lanes computes at once, on any SIMD
/// target. Of two blocks, the `taps` of a row that are summed together at each term leave room for fewer. Of four
/// blocks, only single taps are summed.
constexpr index_t most_row_voxels(index_t lane_blocks, index_t taps = 1) noexcept {
  if (lane_blocks > 2) return 6;
  return lane_blocks == 1 ? 28 : taps == 1 ? 14 : std::max<index_t>(1, (29 - 2 * taps) / 2);
}

/// What the channels of a direction are to a product that yields voxels: those of the results and those that are
/// summed, and how many of them a block has.
struct ProductChannels {
  Dim lanes = Dim::k, terms = Dim::c;
  index_t block = 16;
};

/// Returns the indices of the loops around products that yield voxels, the outermost first: those from number `first`
/// to before `microkernel`. Loops of one iteration are left out. Starting with the innermost loop, a product runs the
/// loops over a row, then rows, planes and lane blocks itself, if they stand in this order. It runs a row only if the
/// row has no more pieces than with the longest microkernel of two lane blocks (of four, if there are four). It runs
/// lane blocks only if its microkernel has at least two, or all. If it computes samples instead of voxels, it runs the
/// loops over samples, and then lane blocks.
std::vector<std::size_t> loops_around_products(std::span<const BoundLoop> loops, std::size_t first,
                                               std::size_t microkernel, const ProductChannels& channels);

}  // namespace convolume::plan
