// Unrolled loops over registers, and the hint of prefetches. This file is compiled once per SIMD target.
#if defined(CONVOLUME_CORE_SIMD_UNROLL_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_CORE_SIMD_UNROLL_INL_HPP
#undef CONVOLUME_CORE_SIMD_UNROLL_INL_HPP
#else
#define CONVOLUME_CORE_SIMD_UNROLL_INL_HPP
#endif

#include <cstddef>
#include <utility>

#include "hwy/highway.h"

// For lambdas in unrolled loops: they are compiled for the target of the enclosing function and are always inlined.
#ifndef CONVOLUME_ALWAYS_INLINE
#define CONVOLUME_ALWAYS_INLINE HWY_ATTR __attribute__((always_inline))
#endif

// Before a loop with a constant number of rounds: unrolls all of them, so that the arrays that it indexes stay in
// registers. Compiles several times as fast as Unroll(), whose index is a constant in the body too.
#ifndef CONVOLUME_UNROLL
#ifdef __clang__
#define CONVOLUME_UNROLL _Pragma("clang loop unroll(full)")
#else
#define CONVOLUME_UNROLL _Pragma("GCC unroll 64")
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace convolume::simd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Locality argument of __builtin_prefetch: prefetched data goes into the L2 and does not displace what the L1 holds.
inline constexpr int into_l2 = 2;

/// Calls f with the constants 0 .. N-1, so that the arrays that f indexes stay in registers.
template <class F, std::size_t... I>
HWY_INLINE void UnrollImpl(const F& f, std::index_sequence<I...>) {
  (f(std::integral_constant<int, static_cast<int>(I)>{}), ...);
}
template <int N, class F>
HWY_INLINE void Unroll(const F& f) {
  UnrollImpl(f, std::make_index_sequence<static_cast<std::size_t>(N)>{});
}

}  // namespace HWY_NAMESPACE
}  // namespace convolume::simd
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
