#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/spectra/complex_product.cpp"
#include "conv/spectra/complex_product.hpp"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "core/simd/unroll-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using simd::HWY_NAMESPACE::Unroll;

/// The largest number of rows whose sums fit into the registers. Each row needs two registers.
constexpr int most_rows = HWY_TARGET <= HWY_AVX3 ? 12 : 4;

/// Computes R rows of one vector of lanes.
template <int R, bool Conjugate, class T>
HWY_INLINE void MultiplyRows(const ComplexProduct<T>& p, const T* a, const T* b, T* c) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  std::array<V, R> re, im;
  Unroll<R>([&](auto r) CONVOLUME_ALWAYS_INLINE {
    re[r] = p.add ? hn::LoadU(d, c + r * p.c_row) : hn::Zero(d);
    im[r] = p.add ? hn::LoadU(d, c + r * p.c_row + p.c_im) : hn::Zero(d);
  });
  const std::ptrdiff_t a_row = p.a_row, a_im = p.a_im, a_ahead = p.a_ahead, ahead = p.b_ahead;
  for (index_t k = 0; k < p.terms; ++k, a += p.a_term, b += p.b_term) {
    const V b_re = hn::LoadU(d, b), b_im = hn::LoadU(d, b + p.b_im);
    __builtin_prefetch(b + ahead);
    __builtin_prefetch(b + ahead + p.b_im);
    __builtin_prefetch(a + a_ahead);
    __builtin_prefetch(a + a_ahead + a_im);
    Unroll<R>([&](auto r) CONVOLUME_ALWAYS_INLINE {
      const V a_re = hn::Set(d, a[r * a_row]), a_imaginary = hn::Set(d, a[r * a_row + a_im]);
      re[r] = hn::MulAdd(a_re, b_re, re[r]);
      im[r] = hn::MulAdd(a_imaginary, b_re, im[r]);
      re[r] = Conjugate ? hn::MulAdd(a_imaginary, b_im, re[r]) : hn::NegMulAdd(a_imaginary, b_im, re[r]);
      im[r] = Conjugate ? hn::NegMulAdd(a_re, b_im, im[r]) : hn::MulAdd(a_re, b_im, im[r]);
    });
  }
  Unroll<R>([&](auto r) CONVOLUME_ALWAYS_INLINE {
    hn::StoreU(re[r], d, c + r * p.c_row);
    hn::StoreU(im[r], d, c + r * p.c_row + p.c_im);
  });
}

/// Computes the rows from `row` on, in as few pieces of at most R rows as possible.
template <int R, bool Conjugate, class T>
HWY_INLINE void MultiplyRest(const ComplexProduct<T>& p, index_t row, const T* a, const T* b, T* c) {
  for (; p.rows - row >= R; row += R) MultiplyRows<R, Conjugate>(p, a + row * p.a_row, b, c + row * p.c_row);
  if constexpr (R > 1) MultiplyRest<(R > 8 ? 8 : R > 6 ? 6 : R > 4 ? 4 : R - 1), Conjugate>(p, row, a, b, c);
}

template <bool Conjugate, class T>
HWY_INLINE void MultiplyFrequencies(const ComplexProduct<T>& p) {
  constexpr auto block = static_cast<std::ptrdiff_t>(64 / sizeof(T));
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(hn::ScalableTag<T>()));
  for (index_t f = 0; f < p.frequencies; ++f) {
    for (index_t column = 0; column < p.columns; ++column) {
      for (std::ptrdiff_t lane = 0; lane < block; lane += lanes) {
        MultiplyRest<most_rows, Conjugate>(p, 0, p.a + f * p.a_frequency,
                                           p.b + f * p.b_frequency + column * p.b_column + lane,
                                           p.c + f * p.c_frequency + column * p.c_column + lane);
      }
    }
  }
}

template <class T>
void Multiply(const ComplexProduct<T>& product) {
  const ComplexProduct<T> p = product;  // a copy, so that the compiler knows that no store changes it
  p.conjugate_b ? MultiplyFrequencies<true>(p) : MultiplyFrequencies<false>(p);
}

template <class T>
void MultiplyLanes(const LaneProduct<T>& product) {
  const LaneProduct<T> p = product;
  constexpr auto block = static_cast<std::ptrdiff_t>(64 / sizeof(T));
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  const V sign = hn::Set(d, p.conjugate_b ? T{-1} : T{1});
  for (index_t i = 0; i < p.count; ++i) {
    for (std::ptrdiff_t lane = 2 * i * block; lane < (2 * i + 1) * block; lane += lanes) {
      const V a_re = hn::LoadU(d, p.a + lane), a_im = hn::LoadU(d, p.a + lane + block);
      const V b_re = hn::LoadU(d, p.b + lane), b_im = hn::Mul(sign, hn::LoadU(d, p.b + lane + block));
      V re = p.add ? hn::LoadU(d, p.c + lane) : hn::Zero(d),
        im = p.add ? hn::LoadU(d, p.c + lane + block) : hn::Zero(d);
      re = hn::NegMulAdd(a_im, b_im, hn::MulAdd(a_re, b_re, re));
      im = hn::MulAdd(a_re, b_im, hn::MulAdd(a_im, b_re, im));
      hn::StoreU(re, d, p.c + lane);
      hn::StoreU(im, d, p.c + lane + block);
    }
  }
}

}  // namespace

ComplexKernels<float> ComplexKernelsF32() { return {Multiply<float>, MultiplyLanes<float>}; }
ComplexKernels<double> ComplexKernelsF64() { return {Multiply<double>, MultiplyLanes<double>}; }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

HWY_EXPORT(ComplexKernelsF32);
HWY_EXPORT(ComplexKernelsF64);

template <>
ComplexKernels<float> complex_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(ComplexKernelsF32)();
}
template <>
ComplexKernels<double> complex_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(ComplexKernelsF64)();
}

}  // namespace convolume::conv
#endif  // HWY_ONCE
