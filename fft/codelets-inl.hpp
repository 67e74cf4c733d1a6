// Discrete Fourier transforms of small lengths, held in registers, one independent line per lane. All transforms here
// are forward (sign -1) and unnormalised. A backward transform is a forward transform with real and imaginary parts
// swapped on input and on output. This file is compiled once per SIMD target.
#if defined(CONVOLUME_FFT_CODELETS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_FFT_CODELETS_INL_HPP
#undef CONVOLUME_FFT_CODELETS_INL_HPP
#else
#define CONVOLUME_FFT_CODELETS_INL_HPP
#endif

#include <array>
#include <utility>

#include "hwy/highway.h"

#include "core/simd/unroll-inl.hpp"
#include "fft/root_of_unity.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::fft {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using simd::HWY_NAMESPACE::into_l2;
using simd::HWY_NAMESPACE::Unroll;

/// Complex numbers, one per lane.
template <class V>
struct Complex {
  V re, im;
};

template <class V>
HWY_INLINE Complex<V> operator+(const Complex<V>& a, const Complex<V>& b) {
  return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)};
}
template <class V>
HWY_INLINE Complex<V> operator-(const Complex<V>& a, const Complex<V>& b) {
  return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)};
}
template <class V>
HWY_INLINE Complex<V> Conjugate(const Complex<V>& a) {
  return {a.re, hn::Neg(a.im)};
}
/// Return a - i b and a + i b.
template <class V>
HWY_INLINE Complex<V> SubtractI(const Complex<V>& a, const Complex<V>& b) {
  return {hn::Add(a.re, b.im), hn::Sub(a.im, b.re)};
}
template <class V>
HWY_INLINE Complex<V> AddI(const Complex<V>& a, const Complex<V>& b) {
  return {hn::Sub(a.re, b.im), hn::Add(a.im, b.re)};
}
/// Returns a * (re + i im).
template <class V>
HWY_INLINE Complex<V> Multiply(const Complex<V>& a, const V re, const V im) {
  return {hn::NegMulAdd(a.im, im, hn::Mul(a.re, re)), hn::MulAdd(a.im, re, hn::Mul(a.re, im))};
}

/// The N-th roots of unity exp(-2 pi i k / N), rounded to T: re and im of root k.
template <int N, class T>
inline constexpr std::array<std::array<T, 2>, N> roots = [] {
  std::array<std::array<T, 2>, N> all{};
  for (int k = 0; k < N; ++k) {
    const RootOfUnity w = root_of_unity(k, N);
    all[static_cast<std::size_t>(k)] = {static_cast<T>(w.re), static_cast<T>(w.im)};
  }
  return all;
}();

/// Returns exp(-2 pi i K / N) * a. Multiplications by 1, -1, i and -i are left out.
template <int K, int N, class D, class V>
HWY_INLINE Complex<V> Rotate(D d, const Complex<V>& a) {
  using T = hn::TFromD<D>;
  constexpr int k = K % N;
  if constexpr (k == 0) {
    return a;
  } else if constexpr (4 * k == N) {
    return {a.im, hn::Neg(a.re)};
  } else if constexpr (2 * k == N) {
    return {hn::Neg(a.re), hn::Neg(a.im)};
  } else if constexpr (4 * k == 3 * N) {
    return {hn::Neg(a.im), a.re};
  } else if constexpr (8 * k == N) {
    const V c = hn::Set(d, roots<8, T>[1][0]);
    return {hn::Mul(c, hn::Add(a.re, a.im)), hn::Mul(c, hn::Sub(a.im, a.re))};
  } else if constexpr (8 * k == 3 * N) {
    const V c = hn::Set(d, roots<8, T>[1][0]);
    return {hn::Mul(c, hn::Sub(a.im, a.re)), hn::Mul(hn::Neg(c), hn::Add(a.re, a.im))};
  } else {
    constexpr std::array<T, 2> w = roots<N, T>[k];
    return Multiply(a, hn::Set(d, w[0]), hn::Set(d, w[1]));
  }
}

// Points are arguments of the functions below, not of templates. They are constants in unrolled loops, and do not need
// functions of their own, which would take longer to compile.

/// A visit to one point of a line. `before` is the point that was visited before it; it is 0 for the first visit.
struct Visit {
  int point, before;
};
/// Returns visit `step` of round `round`. Round r visits the points r, r + rounds, r + 2 rounds, ...
constexpr Visit InRounds(int rounds, int steps, int round, int step) {
  const int before = step > 0 ? round + rounds * (step - 1) : round > 0 ? round - 1 + rounds * (steps - 1) : 0;
  return {round + rounds * step, before};
}
/// Returns the visit to point j if the points are visited in ascending order.
constexpr Visit InOrder(int j) { return {j, j > 0 ? j - 1 : 0}; }

/// Goes from point to point of a line in memory. A walk needs one or two registers. Without it, a compiler computes the
/// addresses of all points of a butterfly at once. These addresses do not fit into the registers, and spilling them
/// costs more time than the arithmetic.
template <class T>
class Walk {
 public:
  HWY_INLINE Walk(T* first, std::ptrdiff_t step) : point_(first), step_(step) {}
  HWY_INLINE T* To(Visit visit) {
    point_ += (visit.point - visit.before) * step_;
    asm("" : "+r"(point_));  // hides point_ from the optimiser, so that no address is computed early
    return point_;
  }

 private:
  T* point_;
  std::ptrdiff_t step_;
};

/// Computes the discrete Fourier transform of N points. `load(visit)` returns a point; `store(visit, value)` receives
/// output k, the sum over j of point j times exp(-2 pi i j k / N). All loads come before the first store. Each
/// transform chooses the order in which it visits the points, so that few of them are in registers at once.
template <int N>
struct Dft;

/// Transforms the N points of x in place, in registers.
template <int N, class D, class V>
HWY_INLINE void TransformInPlace(D d, std::array<Complex<V>, N>& x) {
  Dft<N>::template Run<V>(
      d, [&](Visit visit) CONVOLUME_ALWAYS_INLINE { return x[static_cast<std::size_t>(visit.point)]; },
      [&](Visit visit, const Complex<V>& value)
          CONVOLUME_ALWAYS_INLINE { x[static_cast<std::size_t>(visit.point)] = value; });
}

/// Loads all N points in ascending order, calls `transform` on them in place, and stores them in ascending order.
template <int N, class V, class Load, class Store, class F>
HWY_INLINE void InTurn(const Load& load, const Store& store, const F& transform) {
  std::array<Complex<V>, N> x;
  CONVOLUME_UNROLL
  for (int j = 0; j < N; ++j) x[static_cast<std::size_t>(j)] = load(InOrder(j));
  transform(x);
  CONVOLUME_UNROLL
  for (int k = 0; k < N; ++k) store(InOrder(k), x[static_cast<std::size_t>(k)]);
}

template <>
struct Dft<1> {
  template <class V, class D, class Load, class Store>
  static HWY_INLINE void Run(D, const Load& load, const Store& store) {
    store(InOrder(0), load(InOrder(0)));
  }
};

template <>
struct Dft<2> {
  template <class V, class D, class Load, class Store>
  static HWY_INLINE void Run(D, const Load& load, const Store& store) {
    const Complex<V> a = load(InOrder(0)), b = load(InOrder(1));
    store(InOrder(0), a + b);
    store(InOrder(1), a - b);
  }
};

template <>
struct Dft<4> {
  template <class V, class D, class Load, class Store>
  static HWY_INLINE void Run(D, const Load& load, const Store& store) {
    InTurn<4, V>(load, store, [](std::array<Complex<V>, 4>& x) CONVOLUME_ALWAYS_INLINE {
      const Complex<V> s = x[0] + x[2], t = x[0] - x[2], u = x[1] + x[3], v = x[1] - x[3];
      x[0] = s + u;
      x[1] = SubtractI(t, v);
      x[2] = s - u;
      x[3] = AddI(t, v);
    });
  }
};

/// Transforms an odd prime length by the sums and differences of mirrored points: 4 h^2 multiply-adds for h = (N-1)/2.
template <int N>
struct OddPrimeDft {
  template <class V, class D, class Load, class Store>
  static HWY_INLINE void Run(D d, const Load& load, const Store& store) {
    InTurn<N, V>(load, store, [d](std::array<Complex<V>, N>& x) CONVOLUME_ALWAYS_INLINE { ByDefinition(d, x); });
  }

 private:
  template <class D, class V>
  static HWY_INLINE void ByDefinition(D d, std::array<Complex<V>, N>& x) {
    constexpr std::size_t h = (N - 1) / 2;
    using T = hn::TFromD<D>;
    std::array<Complex<V>, h> sum, difference;
    const Complex<V> first = x[0];
    CONVOLUME_UNROLL
    for (std::size_t j = 0; j < h; ++j) {
      sum[j] = x[j + 1] + x[N - 1 - j];
      difference[j] = x[j + 1] - x[N - 1 - j];
    }
    Complex<V> zero = first;
    CONVOLUME_UNROLL
    for (std::size_t j = 0; j < h; ++j) zero = zero + sum[j];
    x[0] = zero;
    CONVOLUME_UNROLL
    for (std::size_t k = 0; k < h; ++k) {
      Complex<V> even = first, odd{};
      CONVOLUME_UNROLL
      for (std::size_t j = 0; j < h; ++j) {
        const std::array<T, 2>& w = roots<N, T>[(k + 1) * (j + 1) % N];
        const V c = hn::Set(d, w[0]), s = hn::Set(d, -w[1]);
        even = {hn::MulAdd(sum[j].re, c, even.re), hn::MulAdd(sum[j].im, c, even.im)};
        if (j == 0) {
          odd = {hn::Mul(difference[j].re, s), hn::Mul(difference[j].im, s)};
        } else {
          odd = {hn::MulAdd(difference[j].re, s, odd.re), hn::MulAdd(difference[j].im, s, odd.im)};
        }
      }
      x[k + 1] = SubtractI(even, odd);
      x[N - 1 - k] = AddI(even, odd);
    }
  }
};
/// Transforms length 3, which has one odd term. A multiply-add adds this term to each output with one rounding instead
/// of two. This matters for lengths with many factors 3.
template <>
struct Dft<3> {
  template <class V, class D, class Load, class Store>
  static HWY_INLINE void Run(D d, const Load& load, const Store& store) {
    InTurn<3, V>(load, store, [d](std::array<Complex<V>, 3>& x) CONVOLUME_ALWAYS_INLINE {
      using T = hn::TFromD<D>;
      const Complex<V> first = x[0], sum = x[1] + x[2], difference = x[1] - x[2];
      const V c = hn::Set(d, T{-0.5}), s = hn::Set(d, static_cast<T>(-root_of_unity(1, 3).im));
      const Complex<V> even{hn::MulAdd(sum.re, c, first.re), hn::MulAdd(sum.im, c, first.im)};
      x[0] = first + sum;
      x[1] = {hn::MulAdd(difference.im, s, even.re), hn::NegMulAdd(difference.re, s, even.im)};
      x[2] = {hn::NegMulAdd(difference.im, s, even.re), hn::MulAdd(difference.re, s, even.im)};
    });
  }
};
template <>
struct Dft<5> : OddPrimeDft<5> {};
template <>
struct Dft<7> : OddPrimeDft<7> {};
template <>
struct Dft<11> : OddPrimeDft<11> {};
template <>
struct Dft<13> : OddPrimeDft<13> {};

/// Transforms N = A * B points (Cooley-Tukey): B transforms of length A, twiddle factors, A transforms of length B.
template <int A, int B>
struct CompositeDft {
  template <class V, class D, class Load, class Store>
  static HWY_INLINE void Run(D d, const Load& load, const Store& store) {
    std::array<Complex<V>, A * B> y;
    Unroll<B>([&](auto b) CONVOLUME_ALWAYS_INLINE {
      std::array<Complex<V>, A> column;
      CONVOLUME_UNROLL
      for (int a = 0; a < A; ++a) column[static_cast<std::size_t>(a)] = load(InRounds(B, A, b, a));
      TransformInPlace<A>(d, column);
      Unroll<A>([&](auto k) CONVOLUME_ALWAYS_INLINE { y[B * k + b] = Rotate<b * k, A * B>(d, column[k]); });
    });
    Unroll<A>([&](auto k) CONVOLUME_ALWAYS_INLINE {
      std::array<Complex<V>, B> row;
      CONVOLUME_UNROLL
      for (std::size_t b = 0; b < B; ++b) row[b] = y[B * k + b];
      TransformInPlace<B>(d, row);
      CONVOLUME_UNROLL
      for (int m = 0; m < B; ++m) store(InRounds(A, B, k, m), row[static_cast<std::size_t>(m)]);
    });
  }
};

/// Transforms N = A * B points for coprime A and B (Good 1958, Thomas 1963). The points are reordered instead of
/// multiplied by twiddle factors.
template <int A, int B>
struct PrimeFactorDft {
  /// Returns the points below A * B that leave remainder `a` modulo A, by their remainder modulo B.
  static constexpr std::array<std::size_t, B> RowPlaces(int a) {
    std::array<std::size_t, B> places{};
    for (int k = a; k < A * B; k += A) places[static_cast<std::size_t>(k % B)] = static_cast<std::size_t>(k);
    return places;
  }
  /// Returns the column b whose points (B a + A b) mod N leave `remainder` modulo B.
  static constexpr int ColumnWith(int remainder) {
    int b = 0;
    while (A * b % B != remainder) ++b;
    return b;
  }
  /// Returns the index a of the points B * step + remainder in their column, by step.
  static constexpr std::array<std::size_t, A> PlacesInColumn(int remainder) {
    std::array<std::size_t, A> places{};
    for (int a = 0; a < A; ++a) {
      const int point = (B * a + A * ColumnWith(remainder)) % (A * B);
      places[static_cast<std::size_t>(point / B)] = static_cast<std::size_t>(a);
    }
    return places;
  }
  template <class V, class D, class Load, class Store>
  static HWY_INLINE void Run(D d, const Load& load, const Store& store) {
    std::array<Complex<V>, A * B> y;
    Unroll<B>([&](auto remainder) CONVOLUME_ALWAYS_INLINE {
      static constexpr auto places = PlacesInColumn(remainder);
      std::array<Complex<V>, A> column;
      CONVOLUME_UNROLL
      for (int step = 0; step < A; ++step) {
        column[places[static_cast<std::size_t>(step)]] = load(InRounds(B, A, remainder, step));
      }
      TransformInPlace<A>(d, column);
      constexpr std::size_t b = ColumnWith(remainder);
      CONVOLUME_UNROLL
      for (std::size_t k = 0; k < A; ++k) y[B * k + b] = column[k];
    });
    Unroll<A>([&](auto k) CONVOLUME_ALWAYS_INLINE {
      std::array<Complex<V>, B> row;
      CONVOLUME_UNROLL
      for (std::size_t b = 0; b < B; ++b) row[b] = y[B * k + b];
      TransformInPlace<B>(d, row);
      CONVOLUME_UNROLL
      for (int m = 0; m < B; ++m) store(InRounds(A, B, k, m), row[static_cast<std::size_t>((k + A * m) % B)]);
    });
  }
};

template <>
struct Dft<6> : PrimeFactorDft<2, 3> {};
template <>
struct Dft<8> : CompositeDft<2, 4> {};
template <>
struct Dft<9> : CompositeDft<3, 3> {};
template <>
struct Dft<10> : PrimeFactorDft<2, 5> {};
template <>
struct Dft<12> : PrimeFactorDft<4, 3> {};
template <>
struct Dft<14> : PrimeFactorDft<2, 7> {};
template <>
struct Dft<15> : PrimeFactorDft<3, 5> {};
template <>
struct Dft<16> : CompositeDft<4, 4> {};

}  // namespace HWY_NAMESPACE
}  // namespace convolume::fft
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
