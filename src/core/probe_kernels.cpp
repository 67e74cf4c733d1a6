#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/probe_kernels.cpp"
#include "core/probe_kernels.hpp"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace convolume::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

/// Adds eight vectors and returns the first lane. Callers only need a value that depends on all of them.
HWY_INLINE float Collapse(V a, V b, V c, V d, V e, V f, V g, V h) {
  return hn::GetLane(hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, d)), hn::Add(hn::Add(e, f), hn::Add(g, h))));
}

float MultiplyAdds(index_t rounds) {
  const D d;
  const V factor = hn::Set(d, 0.999f), term = hn::Set(d, 0.001f);
  // The chains begin differently. Otherwise the compiler would find out that they are equal and compute one.
  const auto start = [d](float value) HWY_ATTR { return hn::Set(d, value); };
  V a = start(0.1f), b = start(0.2f), c = start(0.3f), e = start(0.4f), f = start(0.5f);
  V g = start(0.6f), h = start(0.7f), i = start(0.8f), j = start(0.9f), k = start(1.0f);
  for (index_t round = 0; round < rounds; ++round) {
    a = hn::MulAdd(a, factor, term);
    b = hn::MulAdd(b, factor, term);
    c = hn::MulAdd(c, factor, term);
    e = hn::MulAdd(e, factor, term);
    f = hn::MulAdd(f, factor, term);
    g = hn::MulAdd(g, factor, term);
    h = hn::MulAdd(h, factor, term);
    i = hn::MulAdd(i, factor, term);
    j = hn::MulAdd(j, factor, term);
    k = hn::MulAdd(k, factor, term);
  }
  return Collapse(a, b, c, e, f, g, hn::Add(h, i), hn::Add(j, k));
}

float Load(const float* x, index_t n, index_t rounds) {
  const D d;
  const auto lanes = static_cast<index_t>(hn::Lanes(d));
  V a = hn::Zero(d), b = a, c = a, e = a, f = a, g = a, h = a, i = a;
  for (index_t round = 0; round < rounds; ++round) {
    for (const float* p = x; p < x + n; p += 8 * lanes) {
      a = hn::Add(a, hn::Load(d, p));
      b = hn::Add(b, hn::Load(d, p + lanes));
      c = hn::Add(c, hn::Load(d, p + 2 * lanes));
      e = hn::Add(e, hn::Load(d, p + 3 * lanes));
      f = hn::Add(f, hn::Load(d, p + 4 * lanes));
      g = hn::Add(g, hn::Load(d, p + 5 * lanes));
      h = hn::Add(h, hn::Load(d, p + 6 * lanes));
      i = hn::Add(i, hn::Load(d, p + 7 * lanes));
    }
  }
  return Collapse(a, b, c, e, f, g, h, i);
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

ProbeKernels Kernels() { return {static_cast<index_t>(hn::Lanes(D()) * sizeof(float)), MultiplyAdds, Load, Store}; }

}  // namespace convolume::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume {

HWY_EXPORT(Kernels);

ProbeKernels probe_kernels() noexcept { return HWY_DYNAMIC_DISPATCH(Kernels)(); }

}  // namespace convolume
#endif  // HWY_ONCE
