#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/probe_kernels.cpp"
#include "core/probe_kernels.hpp"

#include <array>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "core/simd/unroll-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

using simd::HWY_NAMESPACE::Unroll;

/// Chains of multiply-adds that fill the units: four units with a latency of four cycles, where the registers suffice.
constexpr int chains = HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON ? 20 : 12;
constexpr int streams = 8;  // vectors that are loaded together

template <int N>
HWY_INLINE float Collapse(const std::array<V, N>& values) {
  V total = values[0];
  Unroll<N>([&](auto i) CONVOLUME_ALWAYS_INLINE { total = hn::Add(total, values[i]); });
  return hn::GetLane(total);
}

float MultiplyAdds(index_t rounds) {
  const D d;
  const V factor = hn::Set(d, 0.999f), term = hn::Set(d, 0.001f);
  // The chains begin differently. Otherwise the compiler would find out that they are equal and compute one.
  std::array<V, chains> x;
  Unroll<chains>([&](auto i) CONVOLUME_ALWAYS_INLINE { x[i] = hn::Set(d, 0.01f * static_cast<float>(i + 1)); });
  for (index_t round = 0; round < rounds; ++round) {
    Unroll<chains>([&](auto i) CONVOLUME_ALWAYS_INLINE { x[i] = hn::MulAdd(x[i], factor, term); });
  }
  return Collapse<chains>(x);
}

float DependentMultiplyAdds(index_t rounds) {
  const D d;
  const V factor = hn::Set(d, 0.999f), term = hn::Set(d, 0.001f);
  V x = term;
  for (index_t round = 0; round < rounds; ++round) x = hn::MulAdd(x, factor, term);
  return hn::GetLane(x);
}

float Load(const float* x, index_t n, index_t rounds) {
  const D d;
  const auto lanes = static_cast<index_t>(hn::Lanes(d));
  std::array<V, streams> all;
  Unroll<streams>([&](auto i) CONVOLUME_ALWAYS_INLINE { all[i] = hn::Zero(d); });
  for (index_t round = 0; round < rounds; ++round) {
    for (const float* p = x; p < x + n; p += streams * lanes) {
      // Processors have as many units for Or as for loads, and fewer for additions.
      Unroll<streams>([&](auto i) CONVOLUME_ALWAYS_INLINE { all[i] = hn::Or(all[i], hn::Load(d, p + i * lanes)); });
    }
  }
  return Collapse<streams>(all);
}

void Store(float* x, index_t n, index_t rounds) {
  const D d;
  const auto lanes = static_cast<index_t>(hn::Lanes(d));
  const V value = hn::Set(d, 1.0f);
  for (index_t round = 0; round < rounds; ++round) {
    for (float* p = x; p < x + n; p += 4 * lanes) {
      hn::Store(value, d, p);
      hn::Store(value, d, p + lanes);
      hn::Store(value, d, p + 2 * lanes);
      hn::Store(value, d, p + 3 * lanes);
    }
    // The compiler must not join the rounds.
    asm volatile("" : : "r"(x) : "memory");
  }
}

}  // namespace

ProbeKernels Kernels() {
  return {
      static_cast<index_t>(hn::Lanes(D()) * sizeof(float)), chains, MultiplyAdds, DependentMultiplyAdds, Load, Store};
}

}  // namespace convolume::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume {

HWY_EXPORT(Kernels);

ProbeKernels probe_kernels() noexcept { return HWY_DYNAMIC_DISPATCH(Kernels)(); }

}  // namespace convolume
#endif  // HWY_ONCE
