// Vector code of frequency_product.cpp, compiled once per SIMD target.
#if defined(CONVOLUME_CONV_FREQUENCY_PRODUCT_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_CONV_FREQUENCY_PRODUCT_INL_HPP
#undef CONVOLUME_CONV_FREQUENCY_PRODUCT_INL_HPP
#else
#define CONVOLUME_CONV_FREQUENCY_PRODUCT_INL_HPP
#endif

#include <algorithm>

#include "hwy/highway.h"

#include "conv/spectra/frequency_product.hpp"
#include "convolume/tensor.hpp"
#include "core/simd/complex_pairs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
// A vector of one lane cannot hold a pair (re, im).
template <int terms, class T>
HWY_INLINE void AddTerms(const T* const* a, const T* const* b, index_t begin, bool conjugate_b, index_t count,
                         bool first, T* HWY_RESTRICT sum) {
  for (index_t i = 0; i < 2 * count; i += 2) {
    T re{0}, im{0};
    for (int t = 0; t < terms; ++t) {
      const T* x = a[t] + begin + i;
      const T* w = b[t] + begin + i;
      const T imaginary = conjugate_b ? -w[1] : w[1];
      re += x[0] * w[0] - x[1] * imaginary;
      im += x[1] * w[0] + x[0] * imaginary;
    }
    sum[i] = first ? re : sum[i] + re;
    sum[i + 1] = first ? im : sum[i + 1] + im;
  }
}
#else
/// Multiplies pairs (re, im). The sum of a * b is the sum of a * (br, br) plus the sum of (ai, ar) * (-bi, bi). The
/// second sum is computed as the sum of a * (bi, bi), whose pairs are swapped once for all terms. If b is conjugated,
/// the second sum changes its sign.
template <int terms, class T>
HWY_INLINE void AddTerms(const T* const* a, const T* const* b, index_t begin, bool conjugate_b, index_t count,
                         bool first, T* HWY_RESTRICT sum) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<index_t>(hn::Lanes(d));
  const index_t n = 2 * count;
  const T* x[terms];
  const T* w[terms];
  for (int t = 0; t < terms; ++t) {
    x[t] = a[t] + begin;
    w[t] = b[t] + begin;
  }
  const auto value = [&](const auto& load, index_t i) HWY_ATTR {
    auto direct = hn::Zero(d), crossed = hn::Zero(d);
    for (int t = 0; t < terms; ++t) {
      const auto vx = load(x[t] + i);
      const auto vw = load(w[t] + i);
      direct = hn::MulAdd(vx, hn::DupEven(vw), direct);
      crossed = hn::MulAdd(vx, hn::DupOdd(vw), crossed);
    }
    const auto swapped = simd::HWY_NAMESPACE::SwapPairs(d, crossed);
    const auto plus = hn::Add(direct, swapped), minus = hn::Sub(direct, swapped);
    return conjugate_b ? hn::OddEven(minus, plus) : hn::OddEven(plus, minus);
  };
  const auto load = [&](const T* from) HWY_ATTR { return hn::LoadU(d, from); };
  index_t i = 0;
  if (first) {
    for (; i + lanes <= n; i += lanes) hn::StoreU(value(load, i), d, sum + i);
  } else {
    for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Add(hn::LoadU(d, sum + i), value(load, i)), d, sum + i);
  }
  if (i == n) return;
  // The tail goes through a full vector, so that it is rounded like the other elements.
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)] = {};
  const auto load_rest = [&](const T* from) HWY_ATTR {
    for (index_t k = 0; i + k < n; ++k) buffer[k] = from[k];
    return hn::Load(d, buffer);
  };
  const auto rest = value(load_rest, i);
  hn::Store(rest, d, buffer);
  for (index_t k = 0; i + k < n; ++k) sum[i + k] = first ? buffer[k] : sum[i + k] + buffer[k];
}
#endif

template <class T>
HWY_INLINE void AddProducts(const T* const* a, const T* const* b, index_t terms, index_t begin, bool conjugate_b,
                            index_t count, bool first, T* HWY_RESTRICT sum) {
  switch (terms) {
    case 1:
      return AddTerms<1>(a, b, begin, conjugate_b, count, first, sum);
    case 2:
      return AddTerms<2>(a, b, begin, conjugate_b, count, first, sum);
    case 3:
      return AddTerms<3>(a, b, begin, conjugate_b, count, first, sum);
    default:
      return AddTerms<4>(a, b, begin, conjugate_b, count, first, sum);
  }
}

template <class T>
HWY_INLINE void ScaleShift(const T* HWY_RESTRICT x, T scale, T shift, bool add, T* HWY_RESTRICT y, index_t n) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<index_t>(hn::Lanes(d));
  const auto vscale = hn::Set(d, scale);
  const auto vshift = hn::Set(d, shift);
  const auto value = [&](const T* from, const T* old) HWY_ATTR {
    const auto v = hn::MulAdd(hn::LoadU(d, from), vscale, vshift);
    return add ? hn::Add(v, hn::LoadU(d, old)) : v;
  };
  index_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(value(x + i, y + i), d, y + i);
  if (i == n) return;
  HWY_ALIGN T tx[HWY_MAX_BYTES / sizeof(T)] = {};
  HWY_ALIGN T ty[HWY_MAX_BYTES / sizeof(T)] = {};
  for (index_t k = 0; i + k < n; ++k) {
    tx[k] = x[i + k];
    ty[k] = y[i + k];
  }
  hn::Store(value(tx, ty), d, ty);
  for (index_t k = 0; i + k < n; ++k) y[i + k] = ty[k];
}

/// Computes SpectrumKernels::sum_products(). The sums of `chunk` frequencies stay in the L1 while the terms are read.
template <class T>
void SumProducts(const T* const* a, const T* const* b, index_t terms, bool conjugate_b, index_t count, bool add,
                 T* sum) {
  constexpr index_t chunk = 512;
  for (index_t begin = 0; begin < count; begin += chunk) {
    const index_t n = std::min(chunk, count - begin);
    for (index_t t = 0; t < terms; t += terms_per_pass) {
      const bool first = t == 0 && !add;
      AddProducts(a + t, b + t, std::min(terms_per_pass, terms - t), 2 * begin, conjugate_b, n, first, sum + 2 * begin);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
