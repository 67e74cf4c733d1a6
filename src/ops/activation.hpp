// Element-wise activations and their gradients from the output alone.
#pragma once

#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// y[i] = act(x[i]) for i in [0, n). y may equal x. NaN stays NaN, through relu too (as in PyTorch). The bits of an
/// element do not depend on its position. Thread-safe; allocates nothing. T is float or double here and below.
template <class T>
void activate(const Activation& act, const T* x, T* y, index_t n) noexcept;

/// dz[i] = dy[i] * act'(x[i]), where act' is computed from y = act(x); with `add`, dz[i] += that. dz may equal dy or y.
template <class T>
void activation_gradient(const Activation& act, const T* y, const T* dy, T* dz, index_t n, bool add = false) noexcept;

/// y = act(x). x and y have one shape, one layout and dense channel blocks; y may be x. Throws ShapeMismatch or
/// InvalidArgument for views or a slope that do not serve.
template <class T>
Ready append_activation_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const View<T>& y,
                                const Activation& act);

/// dx = dy * act'(y), or dx += with `add`. Views as above; dx may be dy.
template <class T>
Ready append_activation_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& y, const ConstView<T>& dy,
                                 const View<T>& dx, const Activation& act, bool add);

}  // namespace convolume::ops
