// Vector helpers of the ops kernels: partial loads and stores, element-wise maps, sums in double, exp-based functions.
//
// A tail is computed with the vector formula of the body, on a partly filled vector. So the bits of an element do not
// depend on where a chunk begins or ends.
#if defined(CONVOLUME_OPS_SIMD_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_OPS_SIMD_INL
#undef CONVOLUME_OPS_SIMD_INL
#else
#define CONVOLUME_OPS_SIMD_INL
#endif

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

#include "convolume/tensor.hpp"
#include "core/simd/partial_vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using simd::HWY_NAMESPACE::lanes_of;
using simd::HWY_NAMESPACE::load_first;
using simd::HWY_NAMESPACE::load_lanes;
using simd::HWY_NAMESPACE::store_first;
using simd::HWY_NAMESPACE::store_lanes;

/// Loads every `stride`-th element from p on, `count` of them.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_strided(D d, const T* p, index_t stride, index_t count) {
  HWY_ALIGN T buffer[hn::MaxLanes(d)] = {};
  for (index_t i = 0; i < count; ++i) buffer[i] = p[i * stride];
  return hn::Load(d, buffer);
}

/// Computes y[i] = f(in[i]...). y may equal any of the inputs.
template <class D, class T, class F, class... In>
HWY_INLINE void map_elements(D d, T* y, index_t n, const F& f, const In*... in) {
  const index_t lanes = lanes_of(d);
  index_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, in + i)...), d, y + i);
  if (i < n) store_first(f(load_first(d, in + i, n - i)...), d, y + i, n - i);
}

/// Loads `count` elements and widens them to double.
template <class DD>
HWY_INLINE hn::Vec<DD> load_double(DD dd, const double* p, index_t count) {
  return load_lanes(dd, p, count);
}
template <class DD>
HWY_INLINE hn::Vec<DD> load_double(DD dd, const float* p, index_t count) {
  return hn::PromoteTo(dd, load_lanes(hn::Rebind<float, DD>(), p, count));
}

template <class DD>
HWY_INLINE double add_up(DD dd, hn::Vec<DD> v) {
  HWY_ALIGN double lanes[hn::MaxLanes(dd)];
  hn::Store(v, dd, lanes);
  double sum = 0;
  for (index_t i = 0; i < lanes_of(dd); ++i) sum += lanes[i];
  return sum;
}

/// Returns the sum over i of f(i, count), a vector of double for elements [i, i + count). Four accumulators hide the
/// latency of the addition. The order of additions depends only on n and the lanes of a vector.
template <class DD, class F>
HWY_INLINE double sum_elements(DD dd, index_t n, const F& f) {
  const index_t lanes = lanes_of(dd);
  auto sum0 = hn::Zero(dd), sum1 = hn::Zero(dd), sum2 = hn::Zero(dd), sum3 = hn::Zero(dd);
  index_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    sum0 = hn::Add(sum0, f(i, lanes));
    sum1 = hn::Add(sum1, f(i + lanes, lanes));
    sum2 = hn::Add(sum2, f(i + 2 * lanes, lanes));
    sum3 = hn::Add(sum3, f(i + 3 * lanes, lanes));
  }
  for (; i + lanes <= n; i += lanes) sum0 = hn::Add(sum0, f(i, lanes));
  if (i < n) {
    const auto part = hn::FirstN(dd, static_cast<std::size_t>(n - i));
    sum1 = hn::Add(sum1, hn::IfThenElseZero(part, f(i, n - i)));
  }
  return add_up(dd, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)));
}

/// Adds vectors of T in double.
template <class D>
class LaneSum {
 public:
  HWY_INLINE LaneSum() : low_(hn::Zero(DD())), high_(hn::Zero(DD())) {}
  HWY_INLINE void add(hn::Vec<D> v) {
    if constexpr (std::is_same_v<hn::TFromD<D>, double>) {
      low_ = hn::Add(low_, v);
    } else {
#if HWY_TARGET == HWY_SCALAR
      low_ = hn::Add(low_, hn::PromoteTo(DD(), v));
#else
      const hn::Half<D> half;
      low_ = hn::Add(low_, hn::PromoteTo(DD(), hn::LowerHalf(half, v)));
      high_ = hn::Add(high_, hn::PromoteTo(DD(), hn::UpperHalf(half, v)));
#endif
    }
  }
  HWY_INLINE double total() const { return add_up(DD(), hn::Add(low_, high_)); }

 private:
#if HWY_TARGET == HWY_SCALAR
  using DD = hn::Rebind<double, D>;
#else
  using DD = hn::Repartition<double, D>;
#endif
  hn::Vec<DD> low_, high_;
};

/// Computes exp(x) for x <= 0. NaN stays NaN; Highway's Exp would give zero for NaN.
template <class D>
HWY_INLINE hn::Vec<D> exp_nonpositive(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto lower = hn::Set(d, static_cast<T>(sizeof(T) == 4 ? -105.0 : -1001.0));
  const auto inside = hn::IfThenElse(hn::Ge(x, lower), x, lower);
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, inside));
}

/// sigmoid(x) and sigmoid(-x), computed without cancellation and overflow.
template <class D>
struct SigmoidPair {
  hn::Vec<D> positive, negative;
};
/// Computes both; `e` must be exp(-|x|).
template <class D>
HWY_INLINE SigmoidPair<D> sigmoid_pair(D d, hn::Vec<D> x, hn::Vec<D> e) {
  using T = hn::TFromD<D>;
  const auto one = hn::Set(d, T{1});
  const auto large = hn::Div(one, hn::Add(one, e));
  const auto small = hn::Mul(e, large);
  const auto is_positive = hn::Ge(x, hn::Zero(d));
  return {hn::IfThenElse(is_positive, large, small), hn::IfThenElse(is_positive, small, large)};
}

template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  return sigmoid_pair(d, x, exp_nonpositive(d, hn::Neg(hn::Abs(x)))).positive;
}

template <class D>
HWY_INLINE hn::Vec<D> tanh(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  // tanh(20) rounds to 1 in both types. Highway's range reduction is undefined far outside this range.
  const auto limit = hn::Set(d, T{20});
  const auto clamped = hn::IfThenElse(hn::Le(hn::Abs(x), limit), x, hn::CopySign(limit, x));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, clamped));
}

}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
