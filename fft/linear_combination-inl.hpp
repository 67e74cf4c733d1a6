// Vector code of linear_combination, compiled once per SIMD target.
#if defined(CONVOLUME_FFT_LINEAR_COMBINATION_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_FFT_LINEAR_COMBINATION_INL_HPP
#undef CONVOLUME_FFT_LINEAR_COMBINATION_INL_HPP
#else
#define CONVOLUME_FFT_LINEAR_COMBINATION_INL_HPP
#endif

#include "hwy/highway.h"

#include "core/simd/complex_pairs-inl.hpp"
#include "fft/linear_combination.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::fft {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
// One lane holds no (re, im) pair.
template <class T>
HWY_INLINE void LinearCombination(const T* const* x, const T* c, index_t terms, index_t count, bool add, T* sum) {
  for (index_t i = 0; i < 2 * count; i += 2) {
    T re = add ? sum[i] : T{0}, im = add ? sum[i + 1] : T{0};
    for (index_t t = 0; t < terms; ++t) {
      re += c[2 * t] * x[t][i] - c[2 * t + 1] * x[t][i + 1];
      im += c[2 * t] * x[t][i + 1] + c[2 * t + 1] * x[t][i];
    }
    sum[i] = re;
    sum[i + 1] = im;
  }
}
#else
/// Computes `vectors` vectors at once: c * x = x * (cr, cr) + (xi, xr) * (-ci, ci). The pairs are swapped only once, in
/// the sum over the terms of x * (ci, ci).
template <int vectors, class T, class Load, class Store>
HWY_INLINE void Combine(const T* const* x, const T* c, index_t terms, index_t i, const Load& load, const Store& store) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<index_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> direct[vectors], crossed[vectors];
  for (int v = 0; v < vectors; ++v) direct[v] = crossed[v] = hn::Zero(d);
  for (index_t t = 0; t < terms; ++t) {
    const auto cr = hn::Set(d, c[2 * t]), ci = hn::Set(d, c[2 * t + 1]);
    for (int v = 0; v < vectors; ++v) {
      const auto value = load(x[t], i + v * lanes);
      direct[v] = hn::MulAdd(value, cr, direct[v]);
      crossed[v] = hn::MulAdd(value, ci, crossed[v]);
    }
  }
  for (int v = 0; v < vectors; ++v) {
    const auto swapped = simd::HWY_NAMESPACE::SwapPairs(d, crossed[v]);
    store(hn::OddEven(hn::Add(direct[v], swapped), hn::Sub(direct[v], swapped)), i + v * lanes);
  }
}

template <class T>
HWY_INLINE void LinearCombination(const T* const* x, const T* c, index_t terms, index_t count, bool add, T* sum) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<index_t>(hn::Lanes(d));
  const index_t n = 2 * count;
  const auto load = [&](const T* from, index_t at) HWY_ATTR { return hn::LoadU(d, from + at); };
  const auto store = [&](auto value, index_t at)
                         HWY_ATTR { hn::StoreU(add ? hn::Add(value, hn::LoadU(d, sum + at)) : value, d, sum + at); };
  index_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) Combine<4>(x, c, terms, i, load, store);
  for (; i + lanes <= n; i += lanes) Combine<1>(x, c, terms, i, load, store);
  if (i == n) return;
  // The tail goes through a full vector, so that it is rounded like the body.
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)] = {};
  const index_t rest = n - i;
  const auto load_rest = [&](const T* from, index_t at) HWY_ATTR {
    for (index_t k = 0; k < rest; ++k) buffer[k] = from[at + k];
    return hn::Load(d, buffer);
  };
  const auto store_rest = [&](auto value, index_t at) HWY_ATTR {
    hn::Store(value, d, buffer);
    for (index_t k = 0; k < rest; ++k) sum[at + k] = add ? buffer[k] + sum[at + k] : buffer[k];
  };
  Combine<1>(x, c, terms, i, load_rest, store_rest);
}
#endif

CombinationKernels<float> CombinationKernelsF32() { return {LinearCombination<float>}; }
CombinationKernels<double> CombinationKernelsF64() { return {LinearCombination<double>}; }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::fft
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
