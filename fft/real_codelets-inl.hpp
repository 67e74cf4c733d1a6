// Transforms of small lengths between real lines and the halves of their spectra. They are held in registers, one
// independent line per lane, and are unnormalised. This file is compiled once per SIMD target.
#if defined(CONVOLUME_FFT_REAL_CODELETS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_FFT_REAL_CODELETS_INL_HPP
#undef CONVOLUME_FFT_REAL_CODELETS_INL_HPP
#else
#define CONVOLUME_FFT_REAL_CODELETS_INL_HPP
#endif

#include "fft/codelets-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::fft {
namespace HWY_NAMESPACE {

template <class V, int N>
using HalfSpectrum = std::array<Complex<V>, N / 2 + 1>;

/// Computes out[k] = sum over j of x[j] exp(-2 pi i j k / N), 0 <= k <= N/2.
template <int N>
struct RealDft;
/// Computes x[j] = sum over all N frequencies k of a Hermitian spectrum of in[k] exp(+2 pi i j k / N). The imaginary
/// parts of in[0] and, for even N, of in[N/2] are not used.
template <int N>
struct HermitianDft;

/// Returns frequency k of a Hermitian spectrum of N points, of which `half` is the first half.
template <int N, class V>
HWY_INLINE Complex<V> Hermitian(std::size_t k, const HalfSpectrum<V, N>& half) {
  return 2 * k > N ? Conjugate(half[N - k]) : half[k];
}

/// Stores value as half[k], or its conjugate as half[N - k] if k lies in the other half.
template <int N, class V>
HWY_INLINE void StoreHermitian(std::size_t k, const Complex<V>& value, HalfSpectrum<V, N>& half) {
  if (2 * k > N) {
    half[N - k] = Conjugate(value);
  } else {
    half[k] = value;
  }
}

/// Transforms backward, in place: x[j] becomes the sum over k of x[k] exp(+2 pi i j k / N).
template <int N, class D, class V>
HWY_INLINE void BackwardDft(D d, std::array<Complex<V>, N>& x) {
  CONVOLUME_UNROLL
  for (Complex<V>& value : x) value = {value.im, value.re};
  TransformInPlace<N>(d, x);
  CONVOLUME_UNROLL
  for (Complex<V>& value : x) value = {value.im, value.re};
}

template <>
struct RealDft<1> {
  template <class D, class V>
  static HWY_INLINE void Run(D d, const std::array<V, 1>& x, HalfSpectrum<V, 1>& out) {
    out[0] = {x[0], hn::Zero(d)};
  }
};
template <>
struct HermitianDft<1> {
  template <class D, class V>
  static HWY_INLINE void Run(D, const HalfSpectrum<V, 1>& in, std::array<V, 1>& x) {
    x[0] = in[0].re;
  }
};

template <>
struct RealDft<2> {
  template <class D, class V>
  static HWY_INLINE void Run(D d, const std::array<V, 2>& x, HalfSpectrum<V, 2>& out) {
    out[0] = {hn::Add(x[0], x[1]), hn::Zero(d)};
    out[1] = {hn::Sub(x[0], x[1]), hn::Zero(d)};
  }
};
template <>
struct HermitianDft<2> {
  template <class D, class V>
  static HWY_INLINE void Run(D, const HalfSpectrum<V, 2>& in, std::array<V, 2>& x) {
    x[0] = hn::Add(in[0].re, in[1].re);
    x[1] = hn::Sub(in[0].re, in[1].re);
  }
};

template <>
struct RealDft<4> {
  template <class D, class V>
  static HWY_INLINE void Run(D d, const std::array<V, 4>& x, HalfSpectrum<V, 4>& out) {
    const V s = hn::Add(x[0], x[2]), u = hn::Add(x[1], x[3]);
    out[0] = {hn::Add(s, u), hn::Zero(d)};
    out[1] = {hn::Sub(x[0], x[2]), hn::Sub(x[3], x[1])};
    out[2] = {hn::Sub(s, u), hn::Zero(d)};
  }
};
template <>
struct HermitianDft<4> {
  template <class D, class V>
  static HWY_INLINE void Run(D, const HalfSpectrum<V, 4>& in, std::array<V, 4>& x) {
    const V s = hn::Add(in[0].re, in[2].re), t = hn::Sub(in[0].re, in[2].re);
    const V u = hn::Add(in[1].re, in[1].re), v = hn::Add(in[1].im, in[1].im);
    x[0] = hn::Add(s, u);
    x[1] = hn::Sub(t, v);
    x[2] = hn::Sub(s, u);
    x[3] = hn::Add(t, v);
  }
};

/// Transforms odd prime lengths: 2 h^2 multiply-adds for h = (N-1)/2.
template <int N>
struct OddPrimeRealDft {
  template <class D, class V>
  static HWY_INLINE void Run(D d, const std::array<V, N>& x, HalfSpectrum<V, N>& out) {
    constexpr std::size_t h = (N - 1) / 2;
    using T = hn::TFromD<D>;
    std::array<V, h> sum, difference;
    V zero = x[0];
    CONVOLUME_UNROLL
    for (std::size_t j = 0; j < h; ++j) {
      sum[j] = hn::Add(x[j + 1], x[N - 1 - j]);
      difference[j] = hn::Sub(x[j + 1], x[N - 1 - j]);
      zero = hn::Add(zero, sum[j]);
    }
    out[0] = {zero, hn::Zero(d)};
    CONVOLUME_UNROLL
    for (std::size_t k = 0; k < h; ++k) {
      V even = x[0], odd = hn::Zero(d);
      CONVOLUME_UNROLL
      for (std::size_t j = 0; j < h; ++j) {
        const std::array<T, 2>& w = roots<N, T>[(k + 1) * (j + 1) % N];
        even = hn::MulAdd(sum[j], hn::Set(d, w[0]), even);
        odd = hn::MulAdd(difference[j], hn::Set(d, w[1]), odd);
      }
      out[k + 1] = {even, odd};
    }
  }
};
template <int N>
struct OddPrimeHermitianDft {
  template <class D, class V>
  static HWY_INLINE void Run(D d, const HalfSpectrum<V, N>& in, std::array<V, N>& x) {
    constexpr std::size_t h = (N - 1) / 2;
    using T = hn::TFromD<D>;
    std::array<Complex<V>, h> twice;
    V zero = in[0].re;
    CONVOLUME_UNROLL
    for (std::size_t k = 0; k < h; ++k) {
      twice[k] = in[k + 1] + in[k + 1];
      zero = hn::Add(zero, twice[k].re);
    }
    x[0] = zero;
    CONVOLUME_UNROLL
    for (std::size_t j = 0; j < h; ++j) {
      V even = in[0].re, odd = hn::Zero(d);
      CONVOLUME_UNROLL
      for (std::size_t k = 0; k < h; ++k) {
        const std::array<T, 2>& w = roots<N, T>[(k + 1) * (j + 1) % N];
        even = hn::MulAdd(twice[k].re, hn::Set(d, w[0]), even);
        odd = hn::MulAdd(twice[k].im, hn::Set(d, w[1]), odd);
      }
      x[j + 1] = hn::Add(even, odd);
      x[N - 1 - j] = hn::Sub(even, odd);
    }
  }
};

/// Transforms N = A * B points: B real transforms of length A, then complex transforms of length B. Half of the A
/// frequencies suffice.
template <int A, int B>
struct CompositeRealDft {
  template <class D, class V>
  static HWY_INLINE void Run(D d, const std::array<V, A * B>& x, HalfSpectrum<V, A * B>& out) {
    constexpr std::size_t n = A * B;
    std::array<HalfSpectrum<V, A>, B> columns;
    Unroll<B>([&](auto b) CONVOLUME_ALWAYS_INLINE {
      std::array<V, A> column;
      CONVOLUME_UNROLL
      for (std::size_t a = 0; a < A; ++a) column[a] = x[B * a + b];
      RealDft<A>::Run(d, column, columns[b]);
    });
    Unroll<A / 2 + 1>([&](auto k) CONVOLUME_ALWAYS_INLINE {
      if constexpr (k == 0) {
        std::array<V, B> row;
        HalfSpectrum<V, B> half;
        CONVOLUME_UNROLL
        for (std::size_t b = 0; b < B; ++b) row[b] = columns[b][0].re;
        RealDft<B>::Run(d, row, half);
        CONVOLUME_UNROLL
        for (std::size_t m = 0; m < B / 2 + 1; ++m) out[A * m] = half[m];
      } else {
        std::array<Complex<V>, B> row;
        Unroll<B>([&](auto b) CONVOLUME_ALWAYS_INLINE { row[b] = Rotate<b * k, n>(d, columns[b][k]); });
        TransformInPlace<B>(d, row);
        CONVOLUME_UNROLL
        for (std::size_t m = 0; m < B; ++m) {
          // The middle row is its own mirror image.
          if (2 * k < A || 2 * (k + A * m) <= n) StoreHermitian<n>(k + A * m, row[m], out);
        }
      }
    });
  }
};
template <int A, int B>
struct CompositeHermitianDft {
  template <class D, class V>
  static HWY_INLINE void Run(D d, const HalfSpectrum<V, A * B>& in, std::array<V, A * B>& x) {
    constexpr std::size_t n = A * B;
    std::array<HalfSpectrum<V, A>, B> columns;
    Unroll<A / 2 + 1>([&](auto k) CONVOLUME_ALWAYS_INLINE {
      if constexpr (k == 0) {
        HalfSpectrum<V, B> half;
        std::array<V, B> row;
        CONVOLUME_UNROLL
        for (std::size_t m = 0; m < B / 2 + 1; ++m) half[m] = in[A * m];
        HermitianDft<B>::Run(d, half, row);
        CONVOLUME_UNROLL
        for (std::size_t b = 0; b < B; ++b) columns[b][0] = {row[b], hn::Zero(d)};
      } else {
        std::array<Complex<V>, B> row;
        CONVOLUME_UNROLL
        for (std::size_t m = 0; m < B; ++m) row[m] = Hermitian<n>(k + A * m, in);
        BackwardDft<B>(d, row);
        Unroll<B>([&](auto b) CONVOLUME_ALWAYS_INLINE { columns[b][k] = Rotate<n - b * k % n, n>(d, row[b]); });
      }
    });
    Unroll<B>([&](auto b) CONVOLUME_ALWAYS_INLINE {
      std::array<V, A> column;
      HermitianDft<A>::Run(d, columns[b], column);
      CONVOLUME_UNROLL
      for (std::size_t a = 0; a < A; ++a) x[B * a + b] = column[a];
    });
  }
};

/// Transforms N = A * B points for coprime A and B. There are no twiddle factors, so the middle row is real as well.
template <int A, int B>
struct PrimeFactorRealDft {
  template <class D, class V>
  static HWY_INLINE void Run(D d, const std::array<V, A * B>& x, HalfSpectrum<V, A * B>& out) {
    constexpr std::size_t n = A * B;
    using Order = PrimeFactorDft<A, B>;
    std::array<HalfSpectrum<V, A>, B> columns;
    Unroll<B>([&](auto b) CONVOLUME_ALWAYS_INLINE {
      std::array<V, A> column;
      CONVOLUME_UNROLL
      for (std::size_t a = 0; a < A; ++a) column[a] = x[(B * a + A * b) % n];
      RealDft<A>::Run(d, column, columns[b]);
    });
    Unroll<A / 2 + 1>([&](auto k) CONVOLUME_ALWAYS_INLINE {
      static constexpr std::array<std::size_t, B> places = Order::RowPlaces(k);
      if constexpr (k == 0 || 2 * k == A) {
        std::array<V, B> row;
        HalfSpectrum<V, B> half;
        CONVOLUME_UNROLL
        for (std::size_t b = 0; b < B; ++b) row[b] = columns[b][k].re;
        RealDft<B>::Run(d, row, half);
        CONVOLUME_UNROLL
        for (std::size_t m = 0; m < B / 2 + 1; ++m) StoreHermitian<n>(places[m], half[m], out);
      } else {
        std::array<Complex<V>, B> row;
        CONVOLUME_UNROLL
        for (std::size_t b = 0; b < B; ++b) row[b] = columns[b][k];
        TransformInPlace<B>(d, row);
        CONVOLUME_UNROLL
        for (std::size_t m = 0; m < B; ++m) StoreHermitian<n>(places[m], row[m], out);
      }
    });
  }
};
template <int A, int B>
struct PrimeFactorHermitianDft {
  template <class D, class V>
  static HWY_INLINE void Run(D d, const HalfSpectrum<V, A * B>& in, std::array<V, A * B>& x) {
    constexpr std::size_t n = A * B;
    using Order = PrimeFactorDft<A, B>;
    std::array<HalfSpectrum<V, A>, B> columns;
    Unroll<A / 2 + 1>([&](auto k) CONVOLUME_ALWAYS_INLINE {
      static constexpr std::array<std::size_t, B> places = Order::RowPlaces(k);
      if constexpr (k == 0 || 2 * k == A) {
        HalfSpectrum<V, B> half;
        std::array<V, B> row;
        CONVOLUME_UNROLL
        for (std::size_t m = 0; m < B / 2 + 1; ++m) half[m] = Hermitian<n>(places[m], in);
        HermitianDft<B>::Run(d, half, row);
        CONVOLUME_UNROLL
        for (std::size_t b = 0; b < B; ++b) columns[b][k] = {row[b], hn::Zero(d)};
      } else {
        std::array<Complex<V>, B> row;
        CONVOLUME_UNROLL
        for (std::size_t m = 0; m < B; ++m) row[m] = Hermitian<n>(places[m], in);
        BackwardDft<B>(d, row);
        CONVOLUME_UNROLL
        for (std::size_t b = 0; b < B; ++b) columns[b][k] = row[b];
      }
    });
    Unroll<B>([&](auto b) CONVOLUME_ALWAYS_INLINE {
      std::array<V, A> column;
      HermitianDft<A>::Run(d, columns[b], column);
      CONVOLUME_UNROLL
      for (std::size_t a = 0; a < A; ++a) x[(B * a + A * b) % n] = column[a];
    });
  }
};

template <>
struct RealDft<3> : OddPrimeRealDft<3> {};

/// As in Dft<3>, a multiply-add saves one rounding of the general algorithm.
template <>
struct HermitianDft<3> {
  template <class D, class V>
  static HWY_INLINE void Run(D d, const HalfSpectrum<V, 3>& in, std::array<V, 3>& x) {
    const V even = hn::Sub(in[0].re, in[1].re);
    const V s = hn::Set(d, static_cast<hn::TFromD<D>>(-2 * root_of_unity(1, 3).im));
    x[0] = hn::MulAdd(hn::Set(d, hn::TFromD<D>{2}), in[1].re, in[0].re);
    x[1] = hn::NegMulAdd(in[1].im, s, even);
    x[2] = hn::MulAdd(in[1].im, s, even);
  }
};
template <>
struct RealDft<5> : OddPrimeRealDft<5> {};
template <>
struct RealDft<6> : PrimeFactorRealDft<2, 3> {};
template <>
struct RealDft<7> : OddPrimeRealDft<7> {};
template <>
struct RealDft<8> : CompositeRealDft<2, 4> {};
template <>
struct RealDft<9> : CompositeRealDft<3, 3> {};
template <>
struct RealDft<10> : PrimeFactorRealDft<2, 5> {};
template <>
struct RealDft<11> : OddPrimeRealDft<11> {};
template <>
struct RealDft<12> : PrimeFactorRealDft<4, 3> {};
template <>
struct RealDft<13> : OddPrimeRealDft<13> {};
template <>
struct RealDft<14> : PrimeFactorRealDft<2, 7> {};
template <>
struct RealDft<15> : PrimeFactorRealDft<3, 5> {};
template <>
struct RealDft<16> : CompositeRealDft<4, 4> {};

template <>
struct HermitianDft<5> : OddPrimeHermitianDft<5> {};
template <>
struct HermitianDft<6> : PrimeFactorHermitianDft<2, 3> {};
template <>
struct HermitianDft<7> : OddPrimeHermitianDft<7> {};
template <>
struct HermitianDft<8> : CompositeHermitianDft<2, 4> {};
template <>
struct HermitianDft<9> : CompositeHermitianDft<3, 3> {};
template <>
struct HermitianDft<10> : PrimeFactorHermitianDft<2, 5> {};
template <>
struct HermitianDft<11> : OddPrimeHermitianDft<11> {};
template <>
struct HermitianDft<12> : PrimeFactorHermitianDft<4, 3> {};
template <>
struct HermitianDft<13> : OddPrimeHermitianDft<13> {};
template <>
struct HermitianDft<14> : PrimeFactorHermitianDft<2, 7> {};
template <>
struct HermitianDft<15> : PrimeFactorHermitianDft<3, 5> {};
template <>
struct HermitianDft<16> : CompositeHermitianDft<4, 4> {};

}  // namespace HWY_NAMESPACE
}  // namespace convolume::fft
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
