// Complex passes of all radices that are held in registers. Compiled once per SIMD target, and for one type per
// translation unit, since that takes long.
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

/// Frequency k of one column. `in` and `out` are its first points.
template <int R, bool Pruned, bool Twiddled, class T>
HWY_INLINE void Butterfly(const PassArguments<T>& a, const T* in, T* out, index_t first_in, index_t first_out,
                          const T* twiddles) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  std::array<Complex<V>, R> x;
  Unroll<R>([&](auto j) CONVOLUME_ALWAYS_INLINE {
    const T* point = in + j * a.after * a.in_step;
    if (Pruned && first_in + j * a.after >= a.in_points) {
      x[j] = {hn::Zero(d), hn::Zero(d)};
    } else {
      x[j] = {hn::LoadU(d, point), hn::LoadU(d, point + a.in_im)};
      if constexpr (Twiddled && j > 0) {
        x[j] = Multiply(x[j], hn::Set(d, twiddles[2 * (j - 1)]), hn::Set(d, twiddles[2 * (j - 1) + 1]));
      }
    }
  });
  Dft<R>::Run(d, x);
  if (a.ahead != 0) {
    Unroll<R>([&](auto j) CONVOLUME_ALWAYS_INLINE {
      __builtin_prefetch(in + j * a.after * a.in_step + a.ahead, 0, into_l2);
      __builtin_prefetch(in + j * a.after * a.in_step + a.in_im + a.ahead, 0, into_l2);
    });
  }
  const std::ptrdiff_t step = a.before * a.after;
  if (a.out_ahead != 0) {
    Unroll<R>([&](auto c) CONVOLUME_ALWAYS_INLINE {
      __builtin_prefetch(out + c * step * a.out_step + a.out_ahead, 1, into_l2);
      __builtin_prefetch(out + c * step * a.out_step + a.out_im + a.out_ahead, 1, into_l2);
    });
  }
  Unroll<R>([&](auto c) CONVOLUME_ALWAYS_INLINE {
    if (Pruned && first_out + c * step >= a.out_points) return;
    T* point = out + c * step * a.out_step;
    hn::StoreU(x[c].re, d, point);
    hn::StoreU(x[c].im, d, point + a.out_im);
  });
}

template <int R, bool Pruned, class T>
void ComplexPass(const PassArguments<T>& arguments) {
  const PassArguments<T> a = arguments;  // a copy, which no store can change
  for (index_t line = 0; line < a.lines; ++line) {
    const T* in = a.in + line * a.in_line;
    T* out = a.out + line * a.out_line;
    for (index_t i = 0; i < a.prefetch.points; ++i) {
      __builtin_prefetch(a.prefetch.data + line * a.prefetch.line + i * a.prefetch.step, 0, into_l2);
    }
    for (index_t q = 0; q < a.after; ++q) {
      Butterfly<R, Pruned, false>(a, in + q * a.in_step, out + q * a.out_step, q, q, a.twiddles);
    }
    const T* twiddles = a.twiddles;
    for (index_t k = 1; k < a.before; ++k, twiddles += 2 * (R - 1)) {
      for (index_t q = 0; q < a.after; ++q) {
        const index_t first_in = k * R * a.after + q, first_out = k * a.after + q;
        Butterfly<R, Pruned, true>(a, in + first_in * a.in_step, out + first_out * a.out_step, first_in, first_out,
                                   twiddles);
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
