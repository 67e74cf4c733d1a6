// Transforms of one line of a window to the values at the points of window_points.hpp, and back. This file is compiled
// once per SIMD target.
#if defined(CONVOLUME_CONV_WINDOW_POINTS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_CONV_WINDOW_POINTS_INL_HPP
#undef CONVOLUME_CONV_WINDOW_POINTS_INL_HPP
#else
#define CONVOLUME_CONV_WINDOW_POINTS_INL_HPP
#endif

#include "conv/toom_cook/window_points.hpp"
#include "core/simd/unroll-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// A line of six vectors, in registers.
template <class V>
using WindowLine = V[window_points];

/// Replaces six voxels by six values: the products of a voxel's polynomial with the factors of all other points.
template <class D, class V = hn::Vec<D>, class T = hn::TFromD<D>>
HWY_INLINE void TransformSix(D d, WindowLine<V>& v) {
  using namespace toom_cook;
  const V va = hn::Set(d, static_cast<T>(a)), vb = hn::Set(d, static_cast<T>(b));
  const V va2 = hn::Set(d, static_cast<T>(a2)), vb2 = hn::Set(d, static_cast<T>(b2));
  const V product = hn::Set(d, static_cast<T>(a2 * b2)), sum = hn::Set(d, static_cast<T>(a2 + b2));
  const V even_a = hn::NegMulAdd(vb2, v[2], v[4]), odd_a = hn::NegMulAdd(vb2, v[1], v[3]);
  const V even_b = hn::NegMulAdd(va2, v[2], v[4]), odd_b = hn::NegMulAdd(va2, v[1], v[3]);
  v[0] = hn::MulAdd(product, v[0], hn::NegMulAdd(sum, v[2], v[4]));
  v[5] = hn::MulAdd(product, v[1], hn::NegMulAdd(sum, v[3], v[5]));
  v[1] = hn::MulAdd(va, odd_a, even_a);
  v[2] = hn::NegMulAdd(va, odd_a, even_a);
  v[3] = hn::MulAdd(vb, odd_b, even_b);
  v[4] = hn::NegMulAdd(vb, odd_b, even_b);
}

/// Replaces the four taps v[0] to v[3] of a kernel by six values of F(3,4).
template <class D, class V = hn::Vec<D>, class T = hn::TFromD<D>>
HWY_INLINE void TransformFour(D d, WindowLine<V>& v) {
  using namespace toom_cook;
  const auto set = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
  const V even_a = hn::MulAdd(set(a2 / of_a), v[2], hn::Mul(set(1 / of_a), v[0]));
  const V odd_a = hn::MulAdd(set(a3 / of_a), v[3], hn::Mul(set(a / of_a), v[1]));
  const V even_b = hn::MulAdd(set(b2 / of_b), v[2], hn::Mul(set(1 / of_b), v[0]));
  const V odd_b = hn::MulAdd(set(b3 / of_b), v[3], hn::Mul(set(b / of_b), v[1]));
  v[5] = v[3];
  v[0] = hn::Mul(set(1 / of_zero), v[0]);
  v[1] = hn::Add(even_a, odd_a);
  v[2] = hn::Sub(even_a, odd_a);
  v[3] = hn::Add(even_b, odd_b);
  v[4] = hn::Sub(even_b, odd_b);
}

/// Replaces the first `Points` vectors of a line by its six values.
template <int Points, class D, class V = hn::Vec<D>>
HWY_INLINE void TransformLine(D d, WindowLine<V>& v) {
  static_assert(Points == window_points || Points == window_results);
  if constexpr (Points == window_points) {
    TransformSix(d, v);
  } else {
    TransformFour(d, v);
  }
}

/// Replaces six values by `Results` results: four of F(4,3), three of F(3,4).
template <int Results, class D, class V = hn::Vec<D>>
HWY_INLINE void InvertLine(D d, WindowLine<V>& v) {
  using namespace toom_cook;
  using T = hn::TFromD<D>;
  const auto set = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
  const V even_a = hn::Add(v[1], v[2]), odd_a = hn::Sub(v[1], v[2]);
  const V even_b = hn::Add(v[3], v[4]), odd_b = hn::Sub(v[3], v[4]);
  const V infinite = v[5];
  v[0] = hn::Add(hn::Add(v[0], even_a), even_b);
  v[1] = hn::MulAdd(set(a), odd_a, hn::Mul(set(b), odd_b));
  const V squares = hn::Mul(set(b2), even_b);
  if constexpr (Results == window_taps) {
    v[2] = hn::MulAdd(set(a2), even_a, hn::Add(squares, infinite));
  } else {
    v[2] = hn::MulAdd(set(a2), even_a, squares);
    v[3] = hn::MulAdd(set(a3), odd_a, hn::MulAdd(set(b3), odd_b, infinite));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
