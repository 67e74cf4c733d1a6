// The order in which overlapping results of tiles are added.
#pragma once

#include <vector>

#include "convolume/tensor.hpp"

namespace convolume::plan {

/// Divides a grid of tiles with overlapping results into pieces, and orders the additions of neighbours. Layers come
/// from both ends towards the middle, so that the planes that neighbours share are still in the caches. In a layer,
/// even pieces come before odd pieces. In a piece, tiles come in ascending order.
struct OverlapOrder {
  Extent3 count{};  ///< tiles along each axis
  Extent3 piece{};  ///< tiles of a piece: whole rows of a layer, or a part of one row

  OverlapOrder() = default;
  OverlapOrder(const Extent3& tiles, index_t group);
  Extent3 pieces() const noexcept;
  /// Returns whether a tile at position `a` along an axis comes before one at position `b`.
  bool goes_before(int axis, index_t a, index_t b) const noexcept;
  /// Returns the layers in their order.
  std::vector<index_t> layers() const;
};

}  // namespace convolume::plan
