#include "ops/reduce.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/reduce.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "hwy/highway.h"

#include "ops/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

using DD = hn::ScalableTag<double>;

template <class T>
double range_sum(const T* x, index_t n) {
  const DD dd;
  return sum_elements(dd, n, [=](index_t i, index_t count) HWY_ATTR { return load_double(dd, x + i, count); });
}

template <class T>
double range_squares(const T* x, index_t n, double center) {
  const DD dd;
  const auto middle = hn::Set(dd, center);
  return sum_elements(dd, n, [=](index_t i, index_t count) HWY_ATTR {
    const auto v = hn::Sub(load_double(dd, x + i, count), middle);
    return hn::Mul(v, v);
  });
}

template <class T>
double range_products(const T* a, const T* b, index_t n, double center) {
  const DD dd;
  const auto middle = hn::Set(dd, center);
  return sum_elements(dd, n, [=](index_t i, index_t count) HWY_ATTR {
    return hn::Mul(load_double(dd, a + i, count), hn::Sub(load_double(dd, b + i, count), middle));
  });
}

template <class T>
bool range_finite(const T* x, index_t n) {
  const hn::ScalableTag<T> d;
  const index_t lanes = lanes_of(d);
  constexpr index_t vectors_per_block = 64;
  const auto zero = hn::Zero(d);
  for (index_t begin = 0; begin < n; begin += vectors_per_block * lanes) {
    const index_t end = std::min(n, begin + vectors_per_block * lanes);
    // 0 * v is 0 for a finite v, else NaN. Further additions keep NaN.
    auto total = zero;
    index_t i = begin;
    for (; i + lanes <= end; i += lanes) total = hn::MulAdd(hn::LoadU(d, x + i), zero, total);
    if (i < end) total = hn::MulAdd(load_first(d, x + i, end - i), zero, total);
    if (!hn::AllTrue(d, hn::Eq(total, zero))) return false;
  }
  return true;
}

template <class T>
ReduceKernels<T> kernels() {
  return {range_sum<T>, range_squares<T>, range_products<T>, range_finite<T>};
}
ReduceKernels<float> reduce_kernels_f32() { return kernels<float>(); }
ReduceKernels<double> reduce_kernels_f64() { return kernels<double>(); }

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {

HWY_EXPORT(reduce_kernels_f32);
HWY_EXPORT(reduce_kernels_f64);

template <>
ReduceKernels<float> reduce_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(reduce_kernels_f32)();
}
template <>
ReduceKernels<double> reduce_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(reduce_kernels_f64)();
}

template <class T>
double sum(const T* x, index_t n) noexcept {
  return reduce_kernels<T>().sum(x, n);
}

template <class T>
double sum_of_squares(const T* x, index_t n, double center) noexcept {
  return reduce_kernels<T>().squares(x, n, center);
}

template <class T>
double sum_of_products(const T* a, const T* b, index_t n, double center) noexcept {
  return reduce_kernels<T>().products(a, b, n, center);
}

template <class T>
bool all_finite(const T* x, index_t n) noexcept {
  return reduce_kernels<T>().finite(x, n);
}

template double sum(const float*, index_t) noexcept;
template double sum(const double*, index_t) noexcept;
template double sum_of_squares(const float*, index_t, double) noexcept;
template double sum_of_squares(const double*, index_t, double) noexcept;
template double sum_of_products(const float*, const float*, index_t, double) noexcept;
template double sum_of_products(const double*, const double*, index_t, double) noexcept;
template bool all_finite(const float*, index_t) noexcept;
template bool all_finite(const double*, index_t) noexcept;

}  // namespace convolume::ops
#endif  // HWY_ONCE
