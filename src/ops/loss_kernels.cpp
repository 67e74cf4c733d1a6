#include "ops/loss_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/loss_kernels.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "hwy/highway.h"

#include "ops/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

/// Returns the mask of elements [i, i + count), and zero in the other lanes.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_mask(D d, const T* mask, index_t i, index_t count) {
  if (mask != nullptr) return load_lanes(d, mask + i, count);
  const auto one = hn::Set(d, T{1});
  return count == lanes_of(d) ? one : hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(count)), one);
}

template <class T>
BinaryCounts count_binary(const T* target, const T* mask, index_t n) {
  using D = hn::ScalableTag<T>;
  const D d;
  const index_t lanes = lanes_of(d);
  const auto half = hn::Set(d, T{0.5});
  LaneSum<D> negatives, positives;
  for (index_t i = 0; i < n; i += lanes) {
    const index_t count = std::min(lanes, n - i);
    const auto m = load_mask(d, mask, i, count);
    const auto positive = hn::Ge(load_lanes(d, target + i, count), half);
    positives.add(hn::IfThenElseZero(positive, m));
    negatives.add(hn::IfThenZeroElse(positive, m));
  }
  return {negatives.total(), positives.total()};
}

template <class T>
double binary(const T* x, const T* target, const T* mask, T* gradient, index_t n, T negative, T positive) {
  using D = hn::ScalableTag<T>;
  const D d;
  const index_t lanes = lanes_of(d);
  const auto zero = hn::Zero(d), half = hn::Set(d, T{0.5});
  const auto weight0 = hn::Set(d, negative), weight1 = hn::Set(d, positive);
  LaneSum<D> loss;
  for (index_t i = 0; i < n; i += lanes) {
    const index_t count = std::min(lanes, n - i);
    const auto logit = load_lanes(d, x + i, count);
    const auto t = load_lanes(d, target + i, count);
    const auto m = load_mask(d, mask, i, count);
    const auto w = hn::Mul(m, hn::IfThenElse(hn::Ge(t, half), weight1, weight0));
    const auto used = hn::Gt(m, zero);
    const auto e = exp_nonpositive(d, hn::Neg(hn::Abs(logit)));
    // The loss is max(x, 0) - x·t + log(1 + exp(-|x|)). NaN passes through the first term.
    const auto ramp = hn::IfThenZeroElse(hn::Lt(logit, zero), logit);
    const auto log_term = hn::IfThenElse(hn::IsNaN(e), e, hn::Log1p(d, hn::IfThenZeroElse(hn::IsNaN(e), e)));
    const auto l = hn::Add(hn::NegMulAdd(logit, t, ramp), log_term);
    loss.add(hn::IfThenElseZero(used, hn::Mul(w, l)));
    const auto difference = hn::Sub(sigmoid_pair(d, logit, e).positive, t);
    store_lanes(hn::IfThenElseZero(used, hn::Mul(w, difference)), d, gradient + i, count);
  }
  return loss.total();
}

template <class T>
double square(const T* x, const T* target, const T* mask, T* gradient, index_t n, double weight) {
  using D = hn::ScalableTag<T>;
  const D d;
  const index_t lanes = lanes_of(d);
  const auto zero = hn::Zero(d), twice = hn::Set(d, static_cast<T>(2 * weight));
  LaneSum<D> loss;
  for (index_t i = 0; i < n; i += lanes) {
    const index_t count = std::min(lanes, n - i);
    const auto m = load_mask(d, mask, i, count);
    const auto used = hn::Gt(m, zero);
    const auto difference = hn::Sub(load_lanes(d, x + i, count), load_lanes(d, target + i, count));
    const auto weighted = hn::IfThenElseZero(used, hn::Mul(m, difference));
    loss.add(hn::IfThenElseZero(used, hn::Mul(weighted, difference)));
    store_lanes(hn::Mul(twice, weighted), d, gradient + i, count);
  }
  return weight * loss.total();
}

template <class T>
double softmax(const T* x, index_t stride, const T* target, const T* mask, T* gradient, index_t gradient_stride,
               index_t n, index_t classes, const T* weight) {
  using D = hn::ScalableTag<T>;
  const D d;
  const index_t lanes = lanes_of(d);
  const auto zero = hn::Zero(d), one = hn::Set(d, T{1});
  LaneSum<D> loss;
  for (index_t i = 0; i < n; i += lanes) {
    const index_t count = std::min(lanes, n - i);
    const auto t = load_lanes(d, target + i, count);
    const auto m = load_mask(d, mask, i, count);
    const auto used = hn::Gt(m, zero);
    auto largest = load_lanes(d, x + i, count);
    for (index_t c = 1; c < classes; ++c) {
      const auto logit = load_lanes(d, x + c * stride + i, count);
      largest = hn::IfThenElse(hn::Gt(logit, largest), logit, largest);
    }
    // The gradient buffer holds the exponentials until their sum is known.
    auto exponentials = zero, distance = zero, w = zero;
    for (index_t c = 0; c < classes; ++c) {
      const auto below = hn::Sub(load_lanes(d, x + c * stride + i, count), largest);
      const auto e = exp_nonpositive(d, below);
      exponentials = hn::Add(exponentials, e);
      store_lanes(e, d, gradient + c * gradient_stride + i, count);
      const auto is_class = hn::Eq(t, hn::Set(d, static_cast<T>(c)));
      distance = hn::IfThenElse(is_class, below, distance);
      w = hn::IfThenElse(is_class, hn::Set(d, weight[c]), w);
    }
    w = hn::Mul(w, m);
    // The sum is at least 1, unless a logit is NaN.
    const auto is_nan = hn::IsNaN(exponentials);
    const auto log_sum = hn::IfThenElse(is_nan, exponentials, hn::Log(d, hn::IfThenElse(is_nan, one, exponentials)));
    loss.add(hn::IfThenElseZero(used, hn::Mul(w, hn::Sub(log_sum, distance))));
    const auto norm = hn::Div(one, exponentials);
    for (index_t c = 0; c < classes; ++c) {
      T* to = gradient + c * gradient_stride + i;
      const auto p = hn::Mul(load_lanes(d, static_cast<const T*>(to), count), norm);
      const auto hit = hn::IfThenElseZero(hn::Eq(t, hn::Set(d, static_cast<T>(c))), one);
      store_lanes(hn::IfThenElseZero(used, hn::Mul(w, hn::Sub(p, hit))), d, to, count);
    }
  }
  return loss.total();
}

template <class T>
DiceSums dice_sums(const T* x, const T* target, const T* mask, index_t n) {
  using D = hn::ScalableTag<T>;
  const D d;
  const index_t lanes = lanes_of(d);
  LaneSum<D> overlap, predicted, labelled;
  for (index_t i = 0; i < n; i += lanes) {
    const index_t count = std::min(lanes, n - i);
    const auto m = load_mask(d, mask, i, count);
    const auto used = hn::Gt(m, hn::Zero(d));
    const auto p = hn::IfThenElseZero(used, hn::Mul(m, sigmoid(d, load_lanes(d, x + i, count))));
    const auto t = hn::IfThenElseZero(used, hn::Mul(m, load_lanes(d, target + i, count)));
    overlap.add(hn::Mul(p, t));
    predicted.add(p);
    labelled.add(t);
  }
  return {overlap.total(), predicted.total(), labelled.total()};
}

template <class T>
void dice_gradient(const T* x, const T* target, const T* mask, T* gradient, index_t n, T of_target, T of_all) {
  using D = hn::ScalableTag<T>;
  const D d;
  const index_t lanes = lanes_of(d);
  const auto a = hn::Set(d, of_target), b = hn::Set(d, of_all);
  for (index_t i = 0; i < n; i += lanes) {
    const index_t count = std::min(lanes, n - i);
    const auto m = load_mask(d, mask, i, count);
    const auto used = hn::Gt(m, hn::Zero(d));
    const auto logit = load_lanes(d, x + i, count);
    const auto pair = sigmoid_pair(d, logit, exp_nonpositive(d, hn::Neg(hn::Abs(logit))));
    const auto of_p = hn::Mul(m, hn::MulAdd(a, hn::Mul(m, load_lanes(d, target + i, count)), b));
    const auto g = hn::Mul(of_p, hn::Mul(pair.positive, pair.negative));
    store_lanes(hn::IfThenElseZero(used, g), d, gradient + i, count);
  }
}

template <class T>
LossKernels<T> make_kernels() {
  return {count_binary<T>, binary<T>, square<T>, softmax<T>, dice_sums<T>, dice_gradient<T>};
}
LossKernels<float> loss_kernels_f32() { return make_kernels<float>(); }
LossKernels<double> loss_kernels_f64() { return make_kernels<double>(); }

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {
namespace {

HWY_EXPORT(loss_kernels_f32);
HWY_EXPORT(loss_kernels_f64);

}  // namespace

template <>
LossKernels<float> loss_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(loss_kernels_f32)();
}
template <>
LossKernels<double> loss_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(loss_kernels_f64)();
}

}  // namespace convolume::ops
#endif  // HWY_ONCE
