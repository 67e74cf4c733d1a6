// Passes between real lines and the halves of their spectra. A pass of a decimation in time stores frequencies k up to
// before / 2 of each sub-sequence. Frequencies above the middle are mirror images. This file is compiled once per SIMD
// target, and for one data type per translation unit, because it takes long to compile.
#if defined(CONVOLUME_FFT_REAL_PASSES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_FFT_REAL_PASSES_INL_HPP
#undef CONVOLUME_FFT_REAL_PASSES_INL_HPP
#else
#define CONVOLUME_FFT_REAL_PASSES_INL_HPP
#endif

#include "fft/line_kernels.hpp"
#include "fft/real_codelets-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::fft {
namespace HWY_NAMESPACE {

/// Computes frequency 0 of a column. Frequency 0 of its sub-sequences is real. `in` is point `first` of a line.
template <int R, bool Pruned, class T>
HWY_INLINE void RealButterfly(const PassArguments<T>& a, const T* in, T* out, index_t first) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  std::array<V, R> x;
  HalfSpectrum<V, R> half;
  Walk<const T> from(in, a.after * a.in_step);
  CONVOLUME_UNROLL
  for (int j = 0; j < R; ++j) {
    const T* point = from.To(InOrder(j));
    x[static_cast<std::size_t>(j)] = Pruned && first + j * a.after >= a.in_points ? hn::Zero(d) : hn::LoadU(d, point);
  }
  RealDft<R>::Run(d, x, half);
  Walk<T> to(out, a.before * a.after * a.out_step);
  CONVOLUME_UNROLL
  for (int c = 0; c < R / 2 + 1; ++c) {
    T* point = to.To(InOrder(c));
    hn::StoreU(half[static_cast<std::size_t>(c)].re, d, point);
    hn::StoreU(half[static_cast<std::size_t>(c)].im, d, point + a.out_im);
  }
}

/// Walks over the frequencies k + before * c of a column. Frequencies above the middle are stored as their mirror
/// images. Because 2 k <= before, c alone decides in which half a frequency lies.
template <int R, class T>
class HalfWalk {
 public:
  template <class Arguments>
  HWY_INLINE HalfWalk(const Arguments& a, index_t k, T* column, std::ptrdiff_t point_step)
      : low_(column + k * a.after * point_step, a.before * a.after * point_step),
        high_(column + (a.before * (R - first_mirrored) - k) * a.after * point_step, -a.before * a.after * point_step) {
  }
  static constexpr bool Mirrored(int c) { return c >= first_mirrored; }
  HWY_INLINE T* To(int c) { return Mirrored(c) ? high_.To(InOrder(c - first_mirrored)) : low_.To(InOrder(c)); }

 private:
  static constexpr int first_mirrored = (R + 1) / 2;
  Walk<T> low_, high_;
};

/// Computes frequency k > 0 of a column; `out` is point 0 of the column.
template <int R, class T>
HWY_INLINE void ComplexButterfly(const PassArguments<T>& a, index_t k, const T* in, T* out, const T* twiddles) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  std::array<Complex<V>, R> x;
  Walk<const T> from(in, a.after * a.in_step);
  CONVOLUME_UNROLL
  for (int j = 0; j < R; ++j) {
    const T* point = from.To(InOrder(j));
    Complex<V> value{hn::LoadU(d, point), hn::LoadU(d, point + a.in_im)};
    if (j > 0) value = Multiply(value, hn::Set(d, twiddles[2 * (j - 1)]), hn::Set(d, twiddles[2 * (j - 1) + 1]));
    x[static_cast<std::size_t>(j)] = value;
  }
  TransformInPlace<R>(d, x);
  const bool middle = 2 * k == a.before;  // the column is its own mirror image: half of the outputs repeat the others
  HalfWalk<R, T> to(a, k, out, a.out_step);
  CONVOLUME_UNROLL
  for (int c = 0; c < R; ++c) {
    T* point = to.To(c);
    const Complex<V>& value = x[static_cast<std::size_t>(c)];
    if (to.Mirrored(c) && middle) continue;
    hn::StoreU(value.re, d, point);
    hn::StoreU(to.Mirrored(c) ? hn::Neg(value.im) : value.im, d, point + a.out_im);
  }
}

template <int R, bool Pruned, class T>
void RealPass(const PassArguments<T>& arguments) {
  const PassArguments<T> a = arguments;
  for (index_t line = 0; line < a.lines; ++line) {
    const T* in = a.in + line * a.in_line;
    T* out = a.out + line * a.out_line;
    for (index_t i = 0; i < a.prefetch.points; ++i) {
      __builtin_prefetch(a.prefetch.data + line * a.prefetch.line + i * a.prefetch.step, 0, into_l2);
    }
    for (index_t q = 0; q < a.after; ++q) {
      RealButterfly<R, Pruned>(a, in + q * a.in_step, out + q * a.out_step, q);
    }
    if constexpr (Pruned) continue;  // only first passes are pruned, and they have no frequency k > 0
    const T* twiddles = a.twiddles;
    for (index_t k = 1; 2 * k <= a.before; ++k, twiddles += 2 * (R - 1)) {
      for (index_t q = 0; q < a.after; ++q) {
        ComplexButterfly<R>(a, k, in + (k * R * a.after + q) * a.in_step, out + q * a.out_step, twiddles);
      }
    }
  }
}

/// Inverts RealButterfly except for a factor R; `in` is point 0 of the column.
template <int R, class T>
HWY_INLINE void HermitianButterfly(const PassArguments<T>& a, const T* in, T* out) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  std::array<V, R> x;
  HalfSpectrum<V, R> half;
  Walk<const T> from(in, a.before * a.after * a.in_step);
  CONVOLUME_UNROLL
  for (int c = 0; c < R / 2 + 1; ++c) {
    const T* point = from.To(InOrder(c));
    half[static_cast<std::size_t>(c)] = {hn::LoadU(d, point), hn::LoadU(d, point + a.in_im)};
  }
  HermitianDft<R>::Run(d, half, x);
  Walk<T> to(out, a.after * a.out_step);
  CONVOLUME_UNROLL
  for (int j = 0; j < R; ++j) hn::StoreU(x[static_cast<std::size_t>(j)], d, to.To(InOrder(j)));
}

template <int R, class T>
HWY_INLINE void BackwardButterfly(const PassArguments<T>& a, index_t k, const T* in, T* out, const T* twiddles) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  std::array<Complex<V>, R> x;
  HalfWalk<R, const T> from(a, k, in, a.in_step);
  CONVOLUME_UNROLL
  for (int c = 0; c < R; ++c) {
    const T* point = from.To(c);
    const V im = hn::LoadU(d, point + a.in_im);
    // Real and imaginary parts are swapped, because the transform is backward.
    x[static_cast<std::size_t>(c)] = {from.Mirrored(c) ? hn::Neg(im) : im, hn::LoadU(d, point)};
  }
  TransformInPlace<R>(d, x);
  const bool middle = 2 * k == a.before;  // frequency before / 2 of each sub-sequence is real
  Walk<T> to(out, a.after * a.out_step);
  CONVOLUME_UNROLL
  for (int j = 0; j < R; ++j) {
    Complex<V> value = x[static_cast<std::size_t>(j)];
    if (j > 0) value = Multiply(value, hn::Set(d, twiddles[2 * (j - 1)]), hn::Set(d, twiddles[2 * (j - 1) + 1]));
    T* point = to.To(InOrder(j));
    hn::StoreU(value.im, d, point);
    hn::StoreU(middle ? hn::Zero(d) : value.re, d, point + a.out_im);
  }
}

/// Inverts the real pass with the same `before`, `after` and twiddles: reads the frequencies of transforms of length
/// before * radix and writes those of length `before`.
template <int R, class T>
void HermitianPass(const PassArguments<T>& arguments) {
  const PassArguments<T> a = arguments;
  for (index_t line = 0; line < a.lines; ++line) {
    const T* in = a.in + line * a.in_line;
    T* out = a.out + line * a.out_line;
    for (index_t i = 0; i < a.prefetch.points; ++i) {
      __builtin_prefetch(a.prefetch.data + line * a.prefetch.line + i * a.prefetch.step, 0, into_l2);
    }
    for (index_t q = 0; q < a.after; ++q) HermitianButterfly<R>(a, in + q * a.in_step, out + q * a.out_step);
    const T* twiddles = a.twiddles;
    for (index_t k = 1; 2 * k <= a.before; ++k, twiddles += 2 * (R - 1)) {
      for (index_t q = 0; q < a.after; ++q) {
        BackwardButterfly<R>(a, k, in + q * a.in_step, out + (k * R * a.after + q) * a.out_step, twiddles);
      }
    }
  }
}

template <class T, std::size_t... R>
void FillRealPasses(LineKernels<T>& kernels, std::index_sequence<R...>) {
  ((kernels.real[R + 1] = &RealPass<R + 1, false, T>), ...);
  ((kernels.real_pruned[R + 1] = &RealPass<R + 1, true, T>), ...);
  ((kernels.hermitian[R + 1] = &HermitianPass<R + 1, T>), ...);
}

}  // namespace HWY_NAMESPACE
}  // namespace convolume::fft
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
