#include "ops/activation.hpp"

#include <cmath>

#include <fmt/format.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/activation.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "hwy/highway.h"

#include "ops/activation-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

template <class T>
void forward(const Activation& act, const T* x, T* y, index_t n) {
  Activate(act, x, y, n);
}

template <class T>
void gradient(const Activation& act, const T* y, const T* dy, T* dz, index_t n, bool add) {
  ActivationGradient(act, y, dy, dz, n, add);
}

template <class T>
void softmax(const T* x, index_t x_stride, T* p, index_t p_stride, index_t n, index_t classes) {
  using D = hn::ScalableTag<T>;
  const D d;
  const index_t lanes = lanes_of(d);
  for (index_t i = 0; i < n; i += lanes) {
    const index_t count = std::min(lanes, n - i);
    auto largest = load_lanes(d, x + i, count);
    for (index_t c = 1; c < classes; ++c) {
      const auto logit = load_lanes(d, x + c * x_stride + i, count);
      largest = hn::IfThenElse(hn::Gt(logit, largest), logit, largest);
    }
    auto sum = hn::Zero(d);
    for (index_t c = 0; c < classes; ++c) {
      const auto e = exp_nonpositive(d, hn::Sub(load_lanes(d, x + c * x_stride + i, count), largest));
      sum = hn::Add(sum, e);
      store_lanes(e, d, p + c * p_stride + i, count);
    }
    for (index_t c = 0; c < classes; ++c) {
      T* const to = p + c * p_stride + i;
      store_lanes(hn::Div(load_lanes(d, static_cast<const T*>(to), count), sum), d, to, count);
    }
  }
}

ActivationKernels<float> activation_kernels_f32() { return {forward<float>, gradient<float>, softmax<float>}; }
ActivationKernels<double> activation_kernels_f64() { return {forward<double>, gradient<double>, softmax<double>}; }

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {

HWY_EXPORT(activation_kernels_f32);
HWY_EXPORT(activation_kernels_f64);

template <>
ActivationKernels<float> activation_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(activation_kernels_f32)();
}
template <>
ActivationKernels<double> activation_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(activation_kernels_f64)();
}

namespace {

void require_slope(const Activation& act) {
  if (act.kind != Activation::Kind::leaky_relu || act.slope > 0) return;
  throw InvalidArgument(fmt::format(
      "activation: the slope of leaky_relu is {}; it must be positive, because otherwise the sign of the input is lost",
      act.slope));
}

/// Activates a channel block with pad lanes. Works in pieces that are still in the L1 when their pad lanes are cleared.
template <class T>
void activate_padded(const Activation& act, const T* x, T* y, index_t channels, index_t elements) {
  constexpr index_t lanes = View<T>::lanes, piece = 64 * lanes;
  for (index_t i = 0; i < elements; i += piece) {
    const index_t count = std::min(piece, elements - i);
    activate(act, x + i, y + i, count);
    clear_pad_lanes(y + i, channels, count / lanes);
  }
}

}  // namespace

double activation_value(const Activation& act, double value) noexcept {
  switch (act.kind) {
    case Activation::Kind::none:
      return value;
    case Activation::Kind::relu:
      return value < 0 ? 0 : value;
    case Activation::Kind::leaky_relu:
      return value < 0 ? act.slope * value : value;
    case Activation::Kind::sigmoid:
      return 1 / (1 + std::exp(-value));
    case Activation::Kind::tanh:
      return std::tanh(value);
    case Activation::Kind::softsign:
      return std::isinf(value) ? std::copysign(1, value) : value / (1 + std::abs(value));
  }
  return value;
}

double activation_slope(const Activation& act, double y) noexcept {
  switch (act.kind) {
    case Activation::Kind::none:
      return 1;
    case Activation::Kind::relu:
      return y > 0 ? 1 : 0;
    case Activation::Kind::leaky_relu:
      return y > 0 ? 1 : act.slope;
    case Activation::Kind::sigmoid:
      return y * (1 - y);
    case Activation::Kind::tanh:
      return 1 - y * y;
    case Activation::Kind::softsign:
      return (1 - std::abs(y)) * (1 - std::abs(y));
  }
  return 1;
}

template <class T>
void activate(const Activation& act, const T* x, T* y, index_t n) noexcept {
  activation_kernels<T>().forward(act, x, y, n);
}

template <class T>
void activation_gradient(const Activation& act, const T* y, const T* dy, T* dz, index_t n, bool add) noexcept {
  activation_kernels<T>().gradient(act, y, dy, dz, n, add);
}

template <class T>
void softmax(const T* x, index_t x_stride, T* p, index_t p_stride, index_t n, index_t classes) noexcept {
  activation_kernels<T>().softmax(x, x_stride, p, p_stride, n, classes);
}

template <class T>
Ready append_activation_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const View<T>& y,
                                const Activation& act) {
  require_slope(act);
  require_dense("activation", "x", x);
  require_dense("activation", "y", y);
  require_like("activation", "y", y, x);
  const Cut parts = cut(y);
  const bool clears = fills_pad_lanes(act) && y.layout == Layout::blocked;
  auto tasks = append_parts(graph, parts, "activation", bytes_of<T>(2), same_part(ready, x, y), [=](const Part& part) {
    if (clears && part.c1 - part.c0 < View<T>::lanes) {
      activate_padded(act, first_of(x, part), first_of(y, part), part.c1 - part.c0, elements_of(y, part));
    } else {
      activate(act, first_of(x, part), first_of(y, part), elements_of(y, part));
    }
  });
  return ready_of(graph, parts, std::move(tasks), y);
}

template <class T>
Ready append_activation_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& y, const ConstView<T>& dy,
                                 const View<T>& dx, const Activation& act, bool add) {
  require_slope(act);
  require_dense("activation gradient", "y", y);
  require_dense("activation gradient", "dy", dy);
  require_dense("activation gradient", "dx", dx);
  require_like("activation gradient", "dy", dy, y);
  require_like("activation gradient", "dx", dx, y);
  const Cut parts = cut(dx);
  auto tasks = append_parts(graph, parts, "activation_gradient", bytes_of<T>(add ? 4 : 3), same_part(ready, y, dy, dx),
                            [=](const Part& part) {
                              activation_gradient(act, first_of(y, part), first_of(dy, part), first_of(dx, part),
                                                  elements_of(dx, part), add);
                            });
  return ready_of(graph, parts, std::move(tasks), dx);
}

template void activate(const Activation&, const float*, float*, index_t) noexcept;
template void activate(const Activation&, const double*, double*, index_t) noexcept;
template void activation_gradient(const Activation&, const float*, const float*, float*, index_t, bool) noexcept;
template void activation_gradient(const Activation&, const double*, const double*, double*, index_t, bool) noexcept;
template void softmax(const float*, index_t, float*, index_t, index_t, index_t) noexcept;
template void softmax(const double*, index_t, double*, index_t, index_t, index_t) noexcept;
template Ready append_activation_forward<float>(TaskGraph&, const Ready&, const ConstView<float>&, const View<float>&,
                                                const Activation&);
template Ready append_activation_forward<double>(TaskGraph&, const Ready&, const ConstView<double>&,
                                                 const View<double>&, const Activation&);
template Ready append_activation_backward<float>(TaskGraph&, const Ready&, const ConstView<float>&,
                                                 const ConstView<float>&, const View<float>&, const Activation&, bool);
template Ready append_activation_backward<double>(TaskGraph&, const Ready&, const ConstView<double>&,
                                                  const ConstView<double>&, const View<double>&, const Activation&,
                                                  bool);

}  // namespace convolume::ops
#endif  // HWY_ONCE
