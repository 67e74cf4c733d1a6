// Element-wise activations and their gradients, and the softmax over channels. The gradients need only the output.
#pragma once

#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// The kernels of one SIMD target. They compute what activate(), activation_gradient() and softmax() compute.
template <class T>
struct ActivationKernels {
  void (*forward)(const Activation&, const T* x, T* y, index_t n);
  void (*gradient)(const Activation&, const T* y, const T* dy, T* dz, index_t n, bool add);
  void (*softmax)(const T* x, index_t x_stride, T* p, index_t p_stride, index_t n, index_t classes);
};

/// Returns the kernels of the current SIMD target. Plans call this when they are made.
template <class T>
ActivationKernels<T> activation_kernels() noexcept;

/// Computes y[i] = act(x[i]) for i in [0, n). y may equal x. NaN stays NaN, also for relu (as in PyTorch). The bits of
/// an element do not depend on its position. Thread-safe; allocates nothing. T is float or double here and below.
template <class T>
void activate(const Activation& act, const T* x, T* y, index_t n) noexcept;

/// Computes dz[i] = dy[i] * act'(x[i]), or adds it to dz[i] if `add`. act' is computed from y = act(x). dz may equal dy
/// or y.
template <class T>
void activation_gradient(const Activation& act, const T* y, const T* dy, T* dz, index_t n, bool add = false) noexcept;

/// Computes the probabilities of classes for n voxels: p[c][i] = exp(x[c][i]) / sum of exp(x[k][i]) over the classes k.
/// Class c begins c * x_stride elements after x, and c * p_stride elements after p. p may equal x if the strides are
/// equal. If a logit of a voxel is NaN, all its probabilities are NaN. The bits of a voxel do not depend on its
/// position. Thread-safe; allocates nothing.
template <class T>
void softmax(const T* x, index_t x_stride, T* p, index_t p_stride, index_t n, index_t classes) noexcept;

/// Returns whether the activation of zero is not zero, so that pad lanes must be cleared after it.
constexpr bool fills_pad_lanes(const Activation& act) noexcept { return act.kind == Activation::Kind::sigmoid; }

/// Returns act(value) in double, by its definition: the reference for the kernels above.
double activation_value(const Activation& act, double value) noexcept;
/// Returns act'(x) in double, from the output y = act(x).
double activation_slope(const Activation& act, double y) noexcept;

/// Appends y = act(x). x and y have the same shape, the same layout and dense channel blocks. y may be x. Throws
/// ShapeMismatch or InvalidArgument for unsuitable views, and InvalidArgument for a leaky_relu slope that is not
/// positive.
template <class T>
Ready append_activation_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const View<T>& y,
                                const Activation& act);

/// Appends dx = dy * act'(y), or dx += dy * act'(y) if `add`. The views are as above; dx may be dy.
template <class T>
Ready append_activation_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& y, const ConstView<T>& dy,
                                 const View<T>& dx, const Activation& act, bool add);

}  // namespace convolume::ops
