// Vector code of frequency_product.cpp, compiled once per SIMD target.
#if defined(CONVOLUME_CONV_FREQUENCY_PRODUCT_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_CONV_FREQUENCY_PRODUCT_INL_HPP
#undef CONVOLUME_CONV_FREQUENCY_PRODUCT_INL_HPP
#else
#define CONVOLUME_CONV_FREQUENCY_PRODUCT_INL_HPP
#endif

#include <algorithm>

#include "convolume/tensor.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
// One lane holds no pair.
template <class T>
HWY_INLINE void AddProducts(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, bool conjugate_b, index_t count,
                            bool first, T* HWY_RESTRICT sum) {
  for (index_t i = 0; i < 2 * count; i += 2) {
    const T imaginary = conjugate_b ? -b[i + 1] : b[i + 1];
    const T re = first ? T{0} : sum[i], im = first ? T{0} : sum[i + 1];
    sum[i] = re + a[i] * b[i] - a[i + 1] * imaginary;
    sum[i + 1] = im + a[i + 1] * b[i] + a[i] * imaginary;
  }
}
#else
/// (re, im) to (im, re) in every pair of lanes.
template <class T, class D = hn::ScalableTag<T>>
HWY_INLINE hn::Vec<D> SwapPairs(D, hn::Vec<D> a) {
  if constexpr (sizeof(T) == 4) {
    return hn::Shuffle2301(a);
  } else {
    return hn::Shuffle01(a);
  }
}

template <class T>
HWY_INLINE void AddProducts(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, bool conjugate_b, index_t count,
                            bool first, T* HWY_RESTRICT sum) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<index_t>(hn::Lanes(d));
  const auto plus = hn::Set(d, T{1});
  const auto minus = hn::Set(d, T{-1});
  const auto even_negative = hn::OddEven(plus, minus);
  const auto odd_negative = hn::OddEven(minus, plus);
  const auto sign = conjugate_b ? odd_negative : even_negative;
  const index_t n = 2 * count;
  // Pairs (re, im): a * b = a * (br, br) + (ai, ar) * (-bi, bi); with the conjugate of b both signs of bi change.
  const auto product = [&](auto va, auto vb, auto vs) HWY_ATTR {
    const auto vr = hn::MulAdd(va, hn::DupEven(vb), vs);
    return hn::MulAdd(SwapPairs<T>(d, va), hn::Mul(hn::DupOdd(vb), sign), vr);
  };
  index_t i = 0;
  if (first) {
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(product(hn::LoadU(d, a + i), hn::LoadU(d, b + i), hn::Zero(d)), d, sum + i);
    }
  } else {
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(product(hn::LoadU(d, a + i), hn::LoadU(d, b + i), hn::LoadU(d, sum + i)), d, sum + i);
    }
  }
  if (i == n) return;
  // The tail goes through a full vector, so that it rounds as the body does.
  HWY_ALIGN T ta[HWY_MAX_BYTES / sizeof(T)] = {};
  HWY_ALIGN T tb[HWY_MAX_BYTES / sizeof(T)] = {};
  HWY_ALIGN T ts[HWY_MAX_BYTES / sizeof(T)] = {};
  for (index_t k = 0; i + k < n; ++k) {
    ta[k] = a[i + k];
    tb[k] = b[i + k];
    ts[k] = first ? T{0} : sum[i + k];
  }
  hn::Store(product(hn::Load(d, ta), hn::Load(d, tb), hn::Load(d, ts)), d, ts);
  for (index_t k = 0; i + k < n; ++k) sum[i + k] = ts[k];
}

#endif

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

void AddProductsF32(const float* a, const float* b, bool conjugate_b, index_t count, bool first, float* sum) {
  AddProducts(a, b, conjugate_b, count, first, sum);
}
void AddProductsF64(const double* a, const double* b, bool conjugate_b, index_t count, bool first, double* sum) {
  AddProducts(a, b, conjugate_b, count, first, sum);
}
void ScaleShiftF32(const float* x, float scale, float shift, bool add, float* y, index_t n) {
  ScaleShift(x, scale, shift, add, y, n);
}
void ScaleShiftF64(const double* x, double scale, double shift, bool add, double* y, index_t n) {
  ScaleShift(x, scale, shift, add, y, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
