// Nearest-neighbour upsampling by integer factors.
#pragma once

#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// y[z, y, x] = x[z / factor.z, y / factor.y, x / factor.x]; y has the extent of x times `factor`. One layout, dense
/// channel blocks, no aliasing. Throws InvalidArgument for a factor below 1 or views that are not dense, ShapeMismatch
/// for another shape of y.
template <class T>
Ready append_upsample_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const View<T>& y,
                              const Extent3& factor);
/// The adjoint: dx = the sum of dy over the factor.z x factor.y x factor.x copies, in that order; dx += with `add`.
/// `ready` is of dy and of dx, each counting its own planes.
template <class T>
Ready append_upsample_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& dy, const View<T>& dx,
                               const Extent3& factor, bool add);

}  // namespace convolume::ops
