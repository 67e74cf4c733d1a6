#include "ops/norm_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm_kernels.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "hwy/highway.h"

#include "ops/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

using DD = hn::ScalableTag<double>;
using VD = hn::Vec<DD>;

/// Number of vectors of double that hold the lanes of T, and number of sets of them that hide the latency of an
/// addition.
template <class T>
constexpr std::size_t double_vectors = static_cast<std::size_t>(View<T>::lanes) / hn::MaxLanes(DD());
template <class T>
constexpr std::size_t sets = double_vectors<T> >= 4 ? 1 : 4 / double_vectors<T>;

/// Computes sums over a run. add(k, i, count, accumulators) adds elements [i, i + count), count > 0, to `Sums`
/// accumulators. These elements belong to vector k of the lanes. At the end of a run, `count` may be less than the
/// lanes of a vector.
template <class T, std::size_t Sums, class F>
HWY_INLINE void accumulate(index_t n, LaneSums<T>* const (&sums)[Sums], const F& add) {
  constexpr std::size_t vectors = double_vectors<T>, copies = sets<T>;
  const DD dd;
  const index_t lanes = lanes_of(dd);
  VD total[copies][vectors][Sums];
  for (auto& copy : total) {
    for (auto& vector : copy) {
      for (VD& sum : vector) sum = hn::Zero(dd);
    }
  }
  constexpr index_t width = View<T>::lanes, step = width * static_cast<index_t>(copies);
  index_t i = 0;
  for (; i + step <= n; i += step) {
    for (std::size_t copy = 0; copy < copies; ++copy) {
      for (std::size_t k = 0; k < vectors; ++k) {
        add(k, i + static_cast<index_t>(copy) * width + static_cast<index_t>(k) * lanes, lanes, total[copy][k]);
      }
    }
  }
  for (std::size_t k = 0; i < n; i += lanes, k = k + 1 == vectors ? 0 : k + 1) {
    add(k, i, std::min(lanes, n - i), total[0][k]);
  }
  for (std::size_t sum = 0; sum < Sums; ++sum) {
    for (std::size_t k = 0; k < vectors; ++k) {
      VD all = total[0][k][sum];
      for (std::size_t copy = 1; copy < copies; ++copy) all = hn::Add(all, total[copy][k][sum]);
      hn::StoreU(all, dd, sums[sum]->value + static_cast<index_t>(k) * lanes);
    }
  }
}

/// Returns v with zero in the lanes from `count` on.
HWY_INLINE VD first_lanes(VD v, index_t count) {
  const DD dd;
  return count == lanes_of(dd) ? v : hn::IfThenElseZero(hn::FirstN(dd, static_cast<std::size_t>(count)), v);
}

template <class T>
void load_center(const LaneSums<T>& center, VD (&to)[double_vectors<T>]) {
  const DD dd;
  for (std::size_t k = 0; k < double_vectors<T>; ++k) {
    to[k] = hn::LoadU(dd, center.value + static_cast<index_t>(k) * lanes_of(dd));
  }
}

template <class T>
void sum(const T* x, index_t n, LaneSums<T>& sums) {
  const DD dd;
  accumulate<T, 1>(n, {&sums}, [=](std::size_t, index_t i, index_t count, VD(&total)[1]) HWY_ATTR {
    total[0] = hn::Add(total[0], load_double(dd, x + i, count));
  });
}

template <class T>
void squares(const T* x, index_t n, const LaneSums<T>& center, LaneSums<T>& sums) {
  const DD dd;
  VD middle[double_vectors<T>];
  load_center(center, middle);
  accumulate<T, 1>(n, {&sums}, [&](std::size_t k, index_t i, index_t count, VD(&total)[1]) HWY_ATTR {
    const VD v = first_lanes(hn::Sub(load_double(dd, x + i, count), middle[k]), count);
    total[0] = hn::MulAdd(v, v, total[0]);
  });
}

template <class T>
void products(const T* dy, const T* x, index_t n, const LaneSums<T>& center, LaneSums<T>& of_dy,
              LaneSums<T>& of_products) {
  const DD dd;
  VD middle[double_vectors<T>];
  load_center(center, middle);
  accumulate<T, 2>(n, {&of_dy, &of_products}, [&](std::size_t k, index_t i, index_t count, VD(&total)[2]) HWY_ATTR {
    const VD g = load_double(dd, dy + i, count);
    total[0] = hn::Add(total[0], g);
    // In lanes without an element, this adds zero times the center.
    total[1] = hn::MulAdd(g, hn::Sub(load_double(dd, x + i, count), middle[k]), total[1]);
  });
}

/// Computes y[i] = f(k, in[i]...), where k is the vector of lanes to which element i belongs.
template <class D, class T, class F, class... In>
HWY_INLINE void map_lanes(D d, T* y, index_t n, const F& f, const In*... in) {
  constexpr index_t width = View<T>::lanes;
  const index_t lanes = lanes_of(d);
  index_t i = 0;
  for (; i + width <= n; i += width) {
    for (index_t k = 0; k < width / lanes; ++k) {
      const index_t at = i + k * lanes;
      hn::StoreU(f(k, hn::LoadU(d, in + at)...), d, y + at);
    }
  }
  for (index_t k = 0; i < n; i += lanes, ++k) {
    const index_t count = std::min(lanes, n - i);
    store_lanes(f(k, load_lanes(d, in + i, count)...), d, y + i, count);
  }
}

/// The constants of all lanes, in registers as far as there are enough.
template <class T>
struct Constants {
  using D = hn::CappedTag<T, View<T>::lanes>;
  static constexpr std::size_t vectors = static_cast<std::size_t>(View<T>::lanes) / hn::MaxLanes(D());
  using V = hn::Vec<D>;
  V mean[vectors], mean_rest[vectors], of_x[vectors], of_dy[vectors], constant[vectors];

  HWY_INLINE explicit Constants(const LaneAffine<T>& from) {
    const D d;
    for (std::size_t k = 0; k < vectors; ++k) {
      const std::size_t at = k * hn::MaxLanes(d);
      mean[k] = hn::LoadU(d, from.mean + at);
      mean_rest[k] = hn::LoadU(d, from.mean_rest + at);
      of_x[k] = hn::LoadU(d, from.of_x + at);
      of_dy[k] = hn::LoadU(d, from.of_dy + at);
      constant[k] = hn::LoadU(d, from.constant + at);
    }
  }
  HWY_INLINE V of(index_t k, V x) const {
    return hn::MulAdd(of_x[k], hn::Sub(hn::Sub(x, mean[k]), mean_rest[k]), constant[k]);
  }
};

template <class T>
void forward(const LaneAffine<T>& affine, const T* x, T* y, index_t n) {
  const Constants<T> constants(affine);
  using V = typename Constants<T>::V;
  map_lanes(
      typename Constants<T>::D(), y, n, [&](index_t k, V v) HWY_ATTR { return constants.of(k, v); }, x);
}

template <class T>
void backward(const LaneAffine<T>& affine, const T* x, const T* dy, T* dx, index_t n, bool add) {
  const Constants<T> constants(affine);
  using V = typename Constants<T>::V;
  const typename Constants<T>::D d;
  const auto gradient = [&](index_t k, V v, V g)
                            HWY_ATTR { return hn::MulAdd(constants.of_dy[k], g, constants.of(k, v)); };
  if (add) {
    map_lanes(
        d, dx, n, [&](index_t k, V v, V g, V before) HWY_ATTR { return hn::Add(before, gradient(k, v, g)); }, x, dy,
        static_cast<const T*>(dx));
  } else {
    map_lanes(d, dx, n, gradient, x, dy);
  }
}

template <class T>
NormKernels<T> kernels_of() {
  return {sum<T>, squares<T>, products<T>, forward<T>, backward<T>};
}
NormKernels<float> norm_kernels_f32() { return kernels_of<float>(); }
NormKernels<double> norm_kernels_f64() { return kernels_of<double>(); }

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {
namespace {
HWY_EXPORT(norm_kernels_f32);
HWY_EXPORT(norm_kernels_f64);
}  // namespace

template <class T>
NormKernels<T> norm_kernels() noexcept {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(norm_kernels_f32)();
  } else {
    return HWY_DYNAMIC_DISPATCH(norm_kernels_f64)();
  }
}

template NormKernels<float> norm_kernels() noexcept;
template NormKernels<double> norm_kernels() noexcept;

}  // namespace convolume::ops
#endif  // HWY_ONCE
