// Random numbers in vectors. This file is compiled once per SIMD target.
#if defined(CONVOLUME_OPS_RANDOM_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_OPS_RANDOM_INL
#undef CONVOLUME_OPS_RANDOM_INL
#else
#define CONVOLUME_OPS_RANDOM_INL
#endif

#include <algorithm>

#include "hwy/highway.h"

#include "core/random.hpp"
#include "ops/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void random_words(const RandomKey& key, std::uint64_t counter, std::uint32_t* words, index_t count) {
  for (index_t i = 0; i < count; i += 4) {
    const auto four = philox(key, counter++);
    std::copy(four.begin(), four.end(), words + i);
  }
}
#else
/// Computes at least `count` words from `counter` on, in order. `words` is aligned and has room for whole vectors. This
/// is Philox as in core/random.hpp, with one counter per 64-bit lane. MulEven reads only the lower half of a lane, so
/// the upper half may hold garbage.
HWY_INLINE void random_words(const RandomKey& key, std::uint64_t counter, std::uint32_t* words, index_t count) {
  const hn::ScalableTag<std::uint64_t> d64;
  const hn::Repartition<std::uint32_t, decltype(d64)> d32;
  using V = hn::Vec<decltype(d64)>;
  const index_t lanes = lanes_of(d64);
  const auto times = [=](V lower, std::uint32_t factor)
                         HWY_ATTR { return hn::MulEven(hn::BitCast(d32, lower), hn::Set(d32, factor)); };
  const V low_half = hn::Set(d64, std::uint64_t{0xFFFFFFFFu});
  for (index_t i = 0; i < count; i += 4 * lanes, counter += static_cast<std::uint64_t>(lanes)) {
    const V counters = hn::Iota(d64, counter);
    V c0 = counters, c1 = hn::ShiftRight<32>(counters);
    V c2 = hn::Set(d64, std::uint64_t{key.a}), c3 = hn::Set(d64, std::uint64_t{key.b});
    auto k0 = static_cast<std::uint32_t>(key.seed);
    auto k1 = static_cast<std::uint32_t>(key.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const V p0 = times(c0, 0xD2511F53u), p1 = times(c2, 0xCD9E8D57u);
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d64, std::uint64_t{k0}));
      c1 = p1;
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d64, std::uint64_t{k1}));
      c3 = p0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const V words01 = hn::Or(hn::And(c0, low_half), hn::ShiftLeft<32>(c1));
    const V words23 = hn::Or(hn::And(c2, low_half), hn::ShiftLeft<32>(c3));
    hn::StoreInterleaved2(words01, words23, d64, reinterpret_cast<std::uint64_t*>(words + i));
  }
}
#endif

}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
