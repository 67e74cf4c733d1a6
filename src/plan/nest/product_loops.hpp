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

/// The register tile of a product that yields voxels.
struct ProductTile {
  Dim lanes = Dim::k;           ///< the channels of the results: k, or c of backward data
  index_t lane_blocks = 1;      ///< channel blocks of results that are computed together
  index_t all_lane_blocks = 1;  ///< of the results
  index_t results = 1;          ///< voxels of a row, or samples
  bool of_samples = false;
  index_t row_taps = 1;  ///< taps of a row that are summed together at each term
};

/// Returns the loops around products that yield voxels, the outermost first: those from number `first` to before
/// `microkernel` that have several iterations, without the innermost ones that a product runs itself. From the inside,
/// a product runs the loops over a row, over rows, planes and channel blocks of results, as long as the loops stand in
/// this order and its tile is as large as those of other products.
std::vector<std::size_t> loops_around_products(std::span<const BoundLoop> loops, std::size_t first,
                                               std::size_t microkernel, const ProductTile& tile);

}  // namespace convolume::plan
