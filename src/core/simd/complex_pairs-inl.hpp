// Operations on interleaved complex numbers in vectors. This file is compiled once per SIMD target.
#if defined(CONVOLUME_CORE_SIMD_COMPLEX_PAIRS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_CORE_SIMD_COMPLEX_PAIRS_INL_HPP
#undef CONVOLUME_CORE_SIMD_COMPLEX_PAIRS_INL_HPP
#else
#define CONVOLUME_CORE_SIMD_COMPLEX_PAIRS_INL_HPP
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace convolume::simd {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR  // one lane holds no (re, im) pair
/// Swaps (re, im) to (im, re) in every pair of lanes.
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> SwapPairs(D, hwy::HWY_NAMESPACE::Vec<D> a) {
  if constexpr (sizeof(hwy::HWY_NAMESPACE::TFromD<D>) == 4) {
    return hwy::HWY_NAMESPACE::Shuffle2301(a);
  } else {
    return hwy::HWY_NAMESPACE::Shuffle01(a);
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace convolume::simd
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
