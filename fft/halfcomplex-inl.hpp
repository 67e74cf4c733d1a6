// Converts between half-complex lanes and rows of complex numbers: the epilogue (forward) and the prologue (backward)
// of volumes that are transformed along Z first. This file is compiled once per SIMD target.
#if defined(CONVOLUME_FFT_HALFCOMPLEX_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_FFT_HALFCOMPLEX_INL_HPP
#undef CONVOLUME_FFT_HALFCOMPLEX_INL_HPP
#else
#define CONVOLUME_FFT_HALFCOMPLEX_INL_HPP
#endif

#include "fft/codelets-inl.hpp"
#include "fft/line_kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::fft {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
/// Combines two vectors by masks. `vector.low` selects lanes of `low`; `vector.high` selects lanes of `high`, permuted
/// by `vector.lanes`.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> Choose(D d, const HalfcomplexVector<T>& vector, const hn::Vec<D>& low, const hn::Vec<D>& high) {
  const auto mirrored = hn::TableLookupLanes(high, hn::SetTableIndices(d, vector.lanes.data()));
  return hn::Or(hn::And(low, hn::LoadU(d, vector.low.data())), hn::And(mirrored, hn::LoadU(d, vector.high.data())));
}

/// Returns (first, second, first, second, ...).
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> Alternate(D d, T first, T second) {
  return hn::OddEven(hn::Set(d, second), hn::Set(d, first));
}

template <class T, class Row>
HWY_INLINE void ForEachRow(const HalfcomplexArguments<T>& a, const Row& row) {
  T* spectrum = a.spectrum;
  for (index_t plane_row = 0; plane_row < a.plane_rows; ++plane_row) {
    T* lanes = a.lanes + plane_row * a.lane_step;
    for (index_t i = 0; i < a.rows; ++i, lanes += 2 * a.width, spectrum += a.row_step) row(lanes, spectrum);
  }
}

/// Converts lanes to rows. Let u be the spectrum of the lanes at one (ky, kx). Then frequency k is u(re k) + i u(im k),
/// and frequency n - k is u(re k) - i u(im k), both at the same (ky, kx).
template <class T>
void HalfcomplexToRows(const HalfcomplexArguments<T>& arguments) {
  const HalfcomplexArguments<T> a = arguments;
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  const V plus_minus = Alternate(d, T{1}, T{-1}), minus_plus = hn::Neg(plus_minus);
  ForEachRow(a, [&](const T* u, T* out) CONVOLUME_ALWAYS_INLINE {
    for (index_t i = 0; i < a.row_vectors; ++i) {
      const HalfcomplexVector<T>& vector = a.vectors[i];
      V low = hn::Zero(d), high = hn::Zero(d);
      if (vector.has_low) {
        const V re = hn::LoadU(d, u + i * lanes), im = hn::LoadU(d, u + i * lanes + a.width);
        low = hn::MulAdd(hn::Reverse2(d, im), minus_plus, re);
      }
      if (vector.has_high) {
        const V re = hn::LoadU(d, u + vector.mirror), im = hn::LoadU(d, u + vector.mirror + a.width);
        high = hn::MulAdd(re, plus_minus, hn::Reverse2(d, im));
      }
      hn::StoreU(vector.has_high ? Choose(d, vector, low, high) : low, d, out + i * lanes);
    }
    if (!a.packed) return;
    out[0] = u[0];
    out[1] = u[a.width];
    out[a.n] = u[1];
    out[a.n + 1] = u[a.width + 1];
  });
}

/// Converts rows to lanes: u(re k) = (F(k) + F(n - k)) / 2, u(im k) = (F(k) - F(n - k)) / 2i.
template <class T>
void RowsToHalfcomplex(const HalfcomplexArguments<T>& arguments) {
  const HalfcomplexArguments<T> a = arguments;
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  const V half = hn::Set(d, T{0.5}), plus_minus = Alternate(d, T{0.5}, T{-0.5}), minus_plus = hn::Neg(plus_minus);
  ForEachRow(a, [&](T* u, const T* in) CONVOLUME_ALWAYS_INLINE {
    for (index_t i = 0; i < a.lane_vectors; ++i) {
      const HalfcomplexVector<T>& vector = a.vectors[i];
      const V low = hn::LoadU(d, in + i * lanes);
      const V high = Choose(d, vector, low, hn::LoadU(d, in + vector.mirror));
      hn::StoreU(hn::MulAdd(high, plus_minus, hn::Mul(half, low)), d, u + i * lanes);
      const V im = hn::MulAdd(low, minus_plus, hn::Mul(half, high));
      hn::StoreU(hn::Reverse2(d, im), d, u + i * lanes + a.width);
    }
    if (!a.packed) return;
    u[0] = in[0];
    u[1] = in[a.n];
    u[a.width] = in[1];
    u[a.width + 1] = in[a.n + 1];
  });
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace convolume::fft
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
