// Nearest-neighbour upsampling by integer factors.
#pragma once

#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// Appends y[z, y, x] = x[z / factor.z, y / factor.y, x / factor.x]. y has the extent of x times `factor`. Both have
/// the same layout and dense channel blocks. No aliasing. Throws InvalidArgument for a factor below 1 or views that are
/// not dense, and ShapeMismatch for another shape of y.
template <class T>
Ready append_upsample_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const View<T>& y,
                              const Extent3& factor);
/// Appends the adjoint: dx = the sum of dy over the factor.z x factor.y x factor.x copies, in that order, or dx += the
/// sum if `add`. `ready` covers dy and dx. Each counts its own planes.
template <class T>
Ready append_upsample_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& dy, const View<T>& dx,
                               const Extent3& factor, bool add);

}  // namespace convolume::ops
