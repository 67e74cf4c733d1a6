// Loads and stores of vectors that are filled in part. This file is compiled once per SIMD target.
#if defined(CONVOLUME_CORE_SIMD_PARTIAL_VECTORS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_CORE_SIMD_PARTIAL_VECTORS_INL_HPP
#undef CONVOLUME_CORE_SIMD_PARTIAL_VECTORS_INL_HPP
#else
#define CONVOLUME_CORE_SIMD_PARTIAL_VECTORS_INL_HPP
#endif

#include <cstring>
#include <type_traits>

#include "hwy/highway.h"

#include "convolume/tensor.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::simd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE index_t lanes_of(D d) {
  return static_cast<index_t>(hn::Lanes(d));
}

/// Loads the first `count` elements at p, and zero into the other lanes. Does not read memory behind them.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_first(D d, const T* p, index_t count) {
#if HWY_CAP_GE256
  // Masked loads of these targets do not fault on inactive lanes.
  if constexpr (std::is_floating_point_v<T>)
    return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, p);
#endif
  HWY_ALIGN T buffer[hn::MaxLanes(d)] = {};
  std::memcpy(buffer, p, static_cast<std::size_t>(count) * sizeof(T));
  return hn::Load(d, buffer);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_first(hn::Vec<D> v, D d, T* p, index_t count) {
#if HWY_CAP_GE256
  if constexpr (std::is_floating_point_v<T>) {
    hn::BlendedStore(v, hn::FirstN(d, static_cast<std::size_t>(count)), d, p);
    return;
  }
#endif
  HWY_ALIGN T buffer[hn::MaxLanes(d)];
  hn::Store(v, d, buffer);
  std::memcpy(p, buffer, static_cast<std::size_t>(count) * sizeof(T));
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_lanes(D d, const T* p, index_t count) {
  return count == lanes_of(d) ? hn::LoadU(d, p) : load_first(d, p, count);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_lanes(hn::Vec<D> v, D d, T* p, index_t count) {
  if (count == lanes_of(d)) {
    hn::StoreU(v, d, p);
  } else {
    store_first(v, d, p, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace convolume::simd
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
