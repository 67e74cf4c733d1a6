// Complex passes of all radices that fit into registers. This file is compiled once per SIMD target, and for one data
// type per translation unit, because it takes long to compile.
#if defined(CONVOLUME_FFT_COMPLEX_PASSES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_FFT_COMPLEX_PASSES_INL_HPP
#undef CONVOLUME_FFT_COMPLEX_PASSES_INL_HPP
#else
#define CONVOLUME_FFT_COMPLEX_PASSES_INL_HPP
#endif

#include "fft/codelets-inl.hpp"
#include "fft/line_kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::fft {
namespace HWY_NAMESPACE {

/// Prefetches R points that lie `step` elements apart.
template <int R, int ToWrite, class T>
HWY_INLINE void AskFor(const T* first, std::ptrdiff_t step, std::ptrdiff_t im) {
  Walk<const T> walk(first, step);
  CONVOLUME_UNROLL
  for (int j = 0; j < R; ++j) {
    const T* point = walk.To(InOrder(j));
    __builtin_prefetch(point, ToWrite, into_l2);
    __builtin_prefetch(point + im, ToWrite, into_l2);
  }
}

/// Computes the radix-R butterfly of one sub-sequence at one frequency (see PassArguments). `in` and `out` are its
/// first points.
template <int R, bool PrunedIn, bool PrunedOut, bool Twiddled, class T>
HWY_INLINE void Butterfly(const PassArguments<T>& a, const T* in, T* out, index_t first_in, index_t first_out,
                          const T* twiddles) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const std::ptrdiff_t in_step = a.after * a.in_step, between = a.before * a.after, out_step = between * a.out_step;
  if (a.ahead != 0) AskFor<R, 0>(in + a.ahead, in_step, a.in_im);
  if (a.out_ahead != 0) AskFor<R, 1>(out + a.out_ahead, out_step, a.out_im);
  Walk<const T> from(in, in_step);
  Walk<T> to(out, out_step);
  const auto load = [&](Visit visit) CONVOLUME_ALWAYS_INLINE {
    const int j = visit.point;
    const T* point = from.To(visit);
    if (PrunedIn && first_in + j * a.after >= a.in_points) return Complex<V>{hn::Zero(d), hn::Zero(d)};
    const Complex<V> value{hn::LoadU(d, point), hn::LoadU(d, point + a.in_im)};
    if (!Twiddled || j == 0) return value;
    return Multiply(value, hn::Set(d, twiddles[2 * (j - 1)]), hn::Set(d, twiddles[2 * (j - 1) + 1]));
  };
  const auto store = [&](Visit visit, const Complex<V>& value) CONVOLUME_ALWAYS_INLINE {
    T* point = to.To(visit);
    if (PrunedOut && first_out + visit.point * between >= a.out_points) return;
    hn::StoreU(value.re, d, point);
    hn::StoreU(value.im, d, point + a.out_im);
  };
  Dft<R>::template Run<V>(d, load, store);
}

template <int R, bool Pruned, class T>
void ComplexPass(const PassArguments<T>& arguments) {
  const PassArguments<T> a = arguments;  // a local copy: the compiler then knows that no store changes it
  for (index_t line = 0; line < a.lines; ++line) {
    const T* in = a.in + line * a.in_line;
    T* out = a.out + line * a.out_line;
    for (index_t i = 0; i < a.prefetch.points; ++i) {
      __builtin_prefetch(a.prefetch.data + line * a.prefetch.line + i * a.prefetch.step, 0, into_l2);
    }
    for (index_t q = 0; q < a.after; ++q) {
      Butterfly<R, Pruned, Pruned, false>(a, in + q * a.in_step, out + q * a.out_step, q, q, a.twiddles);
    }
    const T* twiddles = a.twiddles;
    // Only first passes have fewer points to read, and they have no frequency k > 0.
    for (index_t k = 1; k < a.before; ++k, twiddles += 2 * (R - 1)) {
      for (index_t q = 0; q < a.after; ++q) {
        const index_t first_in = k * R * a.after + q, first_out = k * a.after + q;
        Butterfly<R, false, Pruned, true>(a, in + first_in * a.in_step, out + first_out * a.out_step, first_in,
                                          first_out, twiddles);
      }
    }
  }
}

template <class T, std::size_t... R>
void FillComplexPasses(LineKernels<T>& kernels, std::index_sequence<R...>) {
  ((kernels.complex[R + 1] = &ComplexPass<R + 1, false, T>), ...);
  ((kernels.complex_pruned[R + 1] = &ComplexPass<R + 1, true, T>), ...);
}

}  // namespace HWY_NAMESPACE
}  // namespace convolume::fft
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
