// Activations and their gradients, for kernels that apply them row by row without another dispatch. This file is
// compiled once per SIMD target.
#if defined(CONVOLUME_OPS_ACTIVATION_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_OPS_ACTIVATION_INL_HPP
#undef CONVOLUME_OPS_ACTIVATION_INL_HPP
#else
#define CONVOLUME_OPS_ACTIVATION_INL_HPP
#endif

#include <limits>

#include "ops/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {

/// Computes y[i] = activation(x[i]). y may be x.
template <class T>
void Activate(const Activation& act, const T* x, T* y, index_t n) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  const D d;
  const V zero = hn::Zero(d);
  switch (act.kind) {
    case Activation::Kind::none:
      if (x != y) std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(T));
      break;
    case Activation::Kind::relu:
      // x <= 0 is false for NaN, so NaN stays NaN.
      map_elements(
          d, y, n, [=](V v) HWY_ATTR { return hn::IfThenZeroElse(hn::Le(v, zero), v); }, x);
      break;
    case Activation::Kind::leaky_relu: {
      const V slope = hn::Set(d, static_cast<T>(act.slope));
      map_elements(
          d, y, n, [=](V v) HWY_ATTR { return hn::IfThenElse(hn::Gt(v, zero), v, hn::Mul(v, slope)); }, x);
      break;
    }
    case Activation::Kind::sigmoid:
      map_elements(
          d, y, n, [=](V v) HWY_ATTR { return sigmoid(d, v); }, x);
      break;
    case Activation::Kind::tanh:
      map_elements(
          d, y, n, [=](V v) HWY_ATTR { return tanh(d, v); }, x);
      break;
    case Activation::Kind::softsign: {
      const V one = hn::Set(d, T{1}), most = hn::Set(d, std::numeric_limits<T>::max());
      map_elements(
          d, y, n,
          [=](V v) HWY_ATTR {
            const V size = hn::Abs(v);
            // Infinity over infinity would be NaN.
            return hn::IfThenElse(hn::Gt(size, most), hn::CopySign(one, v), hn::Div(v, hn::Add(one, size)));
          },
          x);
      break;
    }
  }
}

template <class D, class T, class F>
HWY_INLINE void map_gradient(D d, const T* y, const T* dy, T* dz, index_t n, bool add, const F& f) {
  using V = hn::Vec<D>;
  if (add) {
    map_elements(
        d, dz, n, [&](V out, V g, V before) HWY_ATTR { return hn::Add(before, f(out, g)); }, y, dy,
        static_cast<const T*>(dz));
  } else {
    map_elements(d, dz, n, f, y, dy);
  }
}

/// Computes dz[i] = dy[i] times the derivative at y[i], the output of the activation; with `add`, adds that to dz[i].
template <class T>
void ActivationGradient(const Activation& act, const T* y, const T* dy, T* dz, index_t n, bool add = false) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  const D d;
  const V zero = hn::Zero(d), one = hn::Set(d, T{1});
  switch (act.kind) {
    case Activation::Kind::none:
      map_gradient(d, y, dy, dz, n, add, [](V, V g) HWY_ATTR { return g; });
      break;
    case Activation::Kind::relu:
      map_gradient(d, y, dy, dz, n, add, [=](V out, V g) HWY_ATTR { return hn::IfThenZeroElse(hn::Le(out, zero), g); });
      break;
    case Activation::Kind::leaky_relu: {
      const V slope = hn::Set(d, static_cast<T>(act.slope));
      map_gradient(d, y, dy, dz, n, add,
                   [=](V out, V g) HWY_ATTR { return hn::IfThenElse(hn::Gt(out, zero), g, hn::Mul(g, slope)); });
      break;
    }
    case Activation::Kind::sigmoid:
      map_gradient(d, y, dy, dz, n, add,
                   [=](V out, V g) HWY_ATTR { return hn::Mul(g, hn::Mul(out, hn::Sub(one, out))); });
      break;
    case Activation::Kind::tanh:
      map_gradient(d, y, dy, dz, n, add, [=](V out, V g) HWY_ATTR { return hn::Mul(g, hn::NegMulAdd(out, out, one)); });
      break;
    case Activation::Kind::softsign:
      map_gradient(d, y, dy, dz, n, add, [=](V out, V g) HWY_ATTR {
        const V rest = hn::Sub(one, hn::Abs(out));
        return hn::Mul(g, hn::Mul(rest, rest));
      });
      break;
  }
}

}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
