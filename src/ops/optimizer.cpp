#include "ops/optimizer.hpp"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/optimizer.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "hwy/highway.h"

#include "ops/simd-inl.hpp"

#ifndef CONVOLUME_OPS_OPTIMIZER_KERNELS
#define CONVOLUME_OPS_OPTIMIZER_KERNELS
namespace convolume::ops {
namespace {
template <class T>
struct AdamConstants {
  T scale, decay_gradient, shrink, beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, root_scale, epsilon;
};
template <class T>
struct OptimizerKernels {
  void (*sgd)(const SgdOptions&, T scale, T* w, T* velocity, const T* gradient, index_t n);
  void (*adam)(const AdamConstants<T>&, T* w, T* m, T* v, const T* gradient, index_t n);
};
}  // namespace
}  // namespace convolume::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

template <class T>
void sgd(const SgdOptions& options, T scale_of_gradient, T* w, T* velocity, const T* gradient, index_t n) {
  const hn::ScalableTag<T> d;
  const auto rate = hn::Set(d, static_cast<T>(-options.learning_rate));
  const auto momentum = hn::Set(d, static_cast<T>(options.momentum));
  const auto decay = hn::Set(d, static_cast<T>(options.weight_decay));
  const auto scale = hn::Set(d, scale_of_gradient);
  const index_t lanes = lanes_of(d);
  for (index_t i = 0; i < n; i += lanes) {
    const index_t count = std::min(lanes, n - i);
    const auto weight = load_lanes(d, w + i, count);
    const auto g = hn::MulAdd(decay, weight, hn::Mul(load_lanes(d, gradient + i, count), scale));
    auto direction = g;
    if (options.momentum != 0) {
      const auto v = hn::MulAdd(momentum, load_lanes(d, velocity + i, count), g);
      store_lanes(v, d, velocity + i, count);
      direction = options.nesterov ? hn::MulAdd(momentum, v, g) : v;
    }
    store_lanes(hn::MulAdd(rate, direction, weight), d, w + i, count);
  }
}

template <class T>
void adam(const AdamConstants<T>& k, T* w, T* m, T* v, const T* gradient, index_t n) {
  const hn::ScalableTag<T> d;
  const index_t lanes = lanes_of(d);
  const auto scale = hn::Set(d, k.scale), decay = hn::Set(d, k.decay_gradient), shrink = hn::Set(d, k.shrink);
  const auto beta1 = hn::Set(d, k.beta1), rest1 = hn::Set(d, k.one_minus_beta1);
  const auto beta2 = hn::Set(d, k.beta2), rest2 = hn::Set(d, k.one_minus_beta2);
  const auto step_size = hn::Set(d, k.step_size), root_scale = hn::Set(d, k.root_scale);
  const auto epsilon = hn::Set(d, k.epsilon);
  for (index_t i = 0; i < n; i += lanes) {
    const index_t count = std::min(lanes, n - i);
    const auto before = load_lanes(d, w + i, count);
    const auto g = hn::MulAdd(decay, before, hn::Mul(load_lanes(d, gradient + i, count), scale));
    const auto weight = hn::Mul(before, shrink);
    const auto first = hn::MulAdd(beta1, load_lanes(d, m + i, count), hn::Mul(rest1, g));
    const auto second = hn::MulAdd(beta2, load_lanes(d, v + i, count), hn::Mul(hn::Mul(rest2, g), g));
    const auto denominator = hn::MulAdd(hn::Sqrt(second), root_scale, epsilon);
    store_lanes(first, d, m + i, count);
    store_lanes(second, d, v + i, count);
    store_lanes(hn::NegMulAdd(step_size, hn::Div(first, denominator), weight), d, w + i, count);
  }
}

OptimizerKernels<float> optimizer_kernels_f32() { return {sgd<float>, adam<float>}; }
OptimizerKernels<double> optimizer_kernels_f64() { return {sgd<double>, adam<double>}; }

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {
namespace {

HWY_EXPORT(optimizer_kernels_f32);
HWY_EXPORT(optimizer_kernels_f64);

template <class T>
OptimizerKernels<T> kernels() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(optimizer_kernels_f32)();
  } else {
    return HWY_DYNAMIC_DISPATCH(optimizer_kernels_f64)();
  }
}

}  // namespace

template <class T>
void sgd_step(const SgdOptions& options, double gradient_scale, T* w, T* velocity, const T* gradient,
              index_t n) noexcept {
  kernels<T>().sgd(options, static_cast<T>(gradient_scale), w, velocity, gradient, n);
}

template <class T>
void adam_step(const AdamOptions& options, std::int64_t step, double gradient_scale, T* w, T* m, T* v,
               const T* gradient, index_t n) noexcept {
  const double correction1 = 1 - std::pow(options.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(options.beta2, static_cast<double>(step));
  const AdamConstants<T> constants{
      .scale = static_cast<T>(gradient_scale),
      .decay_gradient = static_cast<T>(options.decoupled ? 0 : options.weight_decay),
      .shrink = static_cast<T>(options.decoupled ? 1 - options.learning_rate * options.weight_decay : 1),
      .beta1 = static_cast<T>(options.beta1),
      .one_minus_beta1 = static_cast<T>(1 - options.beta1),
      .beta2 = static_cast<T>(options.beta2),
      .one_minus_beta2 = static_cast<T>(1 - options.beta2),
      .step_size = static_cast<T>(options.learning_rate / correction1),
      .root_scale = static_cast<T>(1 / std::sqrt(correction2)),
      .epsilon = static_cast<T>(options.epsilon)};
  kernels<T>().adam(constants, w, m, v, gradient, n);
}

template void sgd_step(const SgdOptions&, double, float*, float*, const float*, index_t) noexcept;
template void sgd_step(const SgdOptions&, double, double*, double*, const double*, index_t) noexcept;
template void adam_step(const AdamOptions&, std::int64_t, double, float*, float*, float*, const float*,
                        index_t) noexcept;
template void adam_step(const AdamOptions&, std::int64_t, double, double*, double*, double*, const double*,
                        index_t) noexcept;

}  // namespace convolume::ops
#endif  // HWY_ONCE
