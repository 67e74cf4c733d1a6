// What follows from a net and the extent of its input: shapes, fields of view, and how nodes line up.
#pragma once

#include <array>
#include <vector>

#include "nets/net_spec.hpp"

namespace convolume::nets {

/// Along one axis, in voxels of the net's input: element i of a node sees [i * jump + low, i * jump + high] and is
/// centred at i * jump + origin.
struct AxisView {
  double jump = 1, origin = 0, low = 0, high = 0;
};

struct NodeShape {
  index_t channels = 0;
  Extent3 extent{};
  std::array<AxisView, 3> axes{};
  Extent3 padded_before{0, 0, 0}, padded_behind{0, 0, 0};  ///< outermost voxels that padding had a part in
  bool global = false;                                     ///< a spatial norm lies before it: it sees everything
  std::vector<Extent3> crop;                               ///< first voxel that is taken of each input (concat, add)
};

struct NetShapes {
  NodeShape input;
  std::vector<NodeShape> nodes;

  const NodeShape& output() const { return nodes.back(); }
  const NodeShape& of(std::size_t reference) const { return reference == 0 ? input : nodes[reference - 1]; }
  /// Input voxel that output voxel 0 is centred on, as near as the output, shifted by it, lies within the input.
  Extent3 offset() const;
  /// Voxels before and behind the centre that an output voxel depends on.
  Extent3 reach_before() const, reach_behind() const;
  Extent3 field_of_view() const { return reach_before() + reach_behind() + Extent3::all(1); }
  /// Input positions that are multiples of this see the same pooling grid.
  Extent3 alignment() const;
};

/// Throws ConfigError naming line and node where shapes do not work out, or where the output does not have the
/// resolution of the input or is larger.
NetShapes infer_shapes(const NetSpec& spec, const Extent3& patch);

/// The problem of a convolution node behind an input of the given shape. Throws ConfigError.
ConvProblem conv_problem(const NetSpec& spec, const NodeSpec& node, const ConvNode& conv, index_t batch,
                         const NodeShape& input);

}  // namespace convolume::nets
