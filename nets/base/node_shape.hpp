// The shape of a node of a net, and where its elements lie in the net's input.
#pragma once

#include <array>
#include <vector>

#include "convolume/tensor.hpp"

namespace convolume::nets {

/// Position of a node's elements along one axis, in voxels of the net's input. Element i sees [i * jump + low, i * jump
/// + high] and is centred at i * jump + origin.
struct AxisView {
  double jump = 1, origin = 0, low = 0, high = 0;
};

struct NodeShape {
  index_t channels = 0;
  Extent3 extent{};
  std::array<AxisView, 3> axes{};
  Extent3 padded_before{0, 0, 0}, padded_behind{0, 0, 0};  ///< outermost voxels that depend on padding
  bool global = false;                                     ///< a spatial norm precedes it, so it sees the whole input
  std::vector<Extent3> crop;                               ///< first voxel that is taken of each input (concat, add)
};

}  // namespace convolume::nets
