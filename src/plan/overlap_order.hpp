// The order in which results of tiles that overlap are added up.
#pragma once

#include <vector>

#include "convolume/tensor.hpp"

namespace convolume::plan {

/// Pieces of a grid of tiles whose results overlap, and the order in which neighbours are added up: layers from both
/// ends towards the middle, so that what they have in common is still in the caches; in a layer, even pieces before odd
/// ones; in a piece, tiles in their order.
struct OverlapOrder {
  Extent3 count{};  ///< tiles
  Extent3 piece{};  ///< tiles of a piece: whole rows of a layer, or a part of one

  OverlapOrder() = default;
  OverlapOrder(const Extent3& tiles, index_t group);
  Extent3 pieces() const noexcept;
  /// Whether a tile at `a` along an axis goes before one at `b`.
  bool goes_before(int axis, index_t a, index_t b) const noexcept;
  /// Layers in their order.
  std::vector<index_t> layers() const;
};

}  // namespace convolume::plan
