// Nearest-neighbour upsampling by integer factors.
#pragma once

#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// One dense feature map: y[z, y, x] = x[z / factor.z, y / factor.y, x / factor.x]. `input` is the extent of x, that of
/// y is input * factor. No aliasing. Thread-safe; allocates nothing.
template <class T>
void upsample_forward(const Extent3& factor, const Extent3& input, const T* x, T* y) noexcept;

/// The adjoint: dx = the sum of dy over the factor.z x factor.y x factor.x copies, in that order; dx += with `add`.
template <class T>
void upsample_backward(const Extent3& factor, const Extent3& input, const T* dy, T* dx, bool add) noexcept;

/// One task per feature map. y has the extent of x times `factor`. Throws InvalidArgument for a factor below 1 or
/// feature maps that are not dense, ShapeMismatch for another shape of y.
template <class T>
Ready append_upsample_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const View<T>& y,
                              const Extent3& factor);
template <class T>
Ready append_upsample_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& dy, const View<T>& dx,
                               const Extent3& factor, bool add);

}  // namespace convolume::ops
