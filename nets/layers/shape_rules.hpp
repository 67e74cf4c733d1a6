// How fields of view and padding pass through layers, along one axis.
#pragma once

#include "nets/base/node_shape.hpp"

namespace convolume::nets {

/// Returns the view of a window of `span` voxels that moves by `stride` over an input padded by `pad`.
AxisView windowed(AxisView view, index_t span, index_t stride, index_t pad);
/// Returns the view of the transposed operation.
AxisView transposed(AxisView view, index_t span, index_t stride, index_t pad);

/// Sets how many outermost voxels of y depend on padding. Values are limited to the extent.
void set_padded(NodeShape& y, int axis, index_t before, index_t behind);
/// Marks outputs whose window touches padding, or touches an input voxel that depends on padding.
void pad_window(NodeShape& y, const NodeShape& x, int axis, index_t span, index_t stride, index_t pad);
/// Marks outputs that receive a term from an input voxel that depends on padding, or would receive one from outside the
/// input.
void pad_transposed(NodeShape& y, const NodeShape& x, int axis, index_t span, index_t stride, index_t pad);

}  // namespace convolume::nets
