#include "ops/dropout.hpp"

#include <fmt/format.h>

#include "convolume/error.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/dropout.cpp"
#include "hwy/foreach_target.h"
// foreach_target comes first.
#include "hwy/highway.h"

#include "ops/simd-inl.hpp"

#ifndef CONVOLUME_OPS_DROPOUT_KERNELS
#define CONVOLUME_OPS_DROPOUT_KERNELS
namespace convolume::ops {
namespace {
template <class T>
using Dropout = void (*)(const RandomKey&, double rate, index_t first, const T* x, T* y, index_t n, bool add);
}  // namespace
}  // namespace convolume::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

constexpr index_t words_per_block = 256;

#if HWY_TARGET == HWY_SCALAR
void random_words(const RandomKey& key, std::uint64_t counter, std::uint32_t* words) {
  for (index_t i = 0; i < words_per_block; i += 4) {
    const auto four = philox(key, counter++);
    std::copy(four.begin(), four.end(), words + i);
  }
}
#else
/// The words of words_per_block / 4 counters, in order; `words` is aligned. Philox as in core/random.hpp, a counter per
/// 64-bit lane: MulEven reads the lower half of a lane, so that garbage may stay in the upper one.
void random_words(const RandomKey& key, std::uint64_t counter, std::uint32_t* words) {
  const hn::ScalableTag<std::uint64_t> d64;
  const hn::Repartition<std::uint32_t, decltype(d64)> d32;
  using V = hn::Vec<decltype(d64)>;
  const index_t lanes = lanes_of(d64);
  const auto times = [=](V lower, std::uint32_t factor)
                         HWY_ATTR { return hn::MulEven(hn::BitCast(d32, lower), hn::Set(d32, factor)); };
  const V low_half = hn::Set(d64, std::uint64_t{0xFFFFFFFFu});
  for (index_t i = 0; i < words_per_block; i += 4 * lanes, counter += static_cast<std::uint64_t>(lanes)) {
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

template <class T>
void apply(const RandomKey& key, double rate, index_t first, const T* x, T* y, index_t n, bool add) {
  const hn::ScalableTag<T> d;
  const index_t lanes = lanes_of(d);
  const auto threshold = static_cast<std::uint32_t>(rate * 0x1p32);
  const auto scale = hn::Set(d, static_cast<T>(1 / (1 - rate)));
  const auto zero = hn::Zero(d);
  HWY_ALIGN std::uint32_t words[words_per_block];
  HWY_ALIGN T keep[words_per_block + hn::MaxLanes(d)];
  index_t i = 0;
  while (i < n) {
    const index_t skip = (first + i) % 4;
    random_words(key, static_cast<std::uint64_t>((first + i) / 4), words);
    const index_t count = std::min(words_per_block - skip, n - i);
    for (index_t j = 0; j < count; ++j) keep[j] = words[skip + j] < threshold ? T{0} : T{1};
    for (index_t j = 0; j < count; j += lanes) {
      const index_t part = std::min(lanes, count - j);
      const auto kept = hn::Gt(load_lanes(d, static_cast<const T*>(keep + j), part), zero);
      auto v = hn::IfThenElseZero(kept, hn::Mul(load_lanes(d, x + i + j, part), scale));
      if (add) v = hn::Add(load_lanes(d, static_cast<const T*>(y + i + j), part), v);
      store_lanes(v, d, y + i + j, part);
    }
    i += count;
  }
}

void dropout_f32(const RandomKey& key, double rate, index_t first, const float* x, float* y, index_t n, bool add) {
  apply(key, rate, first, x, y, n, add);
}
void dropout_f64(const RandomKey& key, double rate, index_t first, const double* x, double* y, index_t n, bool add) {
  apply(key, rate, first, x, y, n, add);
}

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {
namespace {

HWY_EXPORT(dropout_f32);
HWY_EXPORT(dropout_f64);

template <class T>
void drop(const RandomKey& key, double rate, index_t first, const T* x, T* y, index_t n, bool add) noexcept {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(dropout_f32)(key, rate, first, x, y, n, add);
  } else {
    HWY_DYNAMIC_DISPATCH(dropout_f64)(key, rate, first, x, y, n, add);
  }
}

template <class T>
Ready append(TaskGraph& graph, const Ready& ready, const View<const T>& from, const View<T>& to, double rate,
             const RandomKey* key, bool add, const char* name) {
  require_dense(name, "the input", from);
  require_dense(name, "the output", to);
  require_shape(name, "the output", to.shape, from.shape);
  if (!(rate >= 0 && rate < 1)) {
    throw InvalidArgument(fmt::format("{}: the rate is {} and has to be in [0, 1)", name, rate));
  }
  if (key == nullptr) throw InvalidArgument(fmt::format("{}: there is no random key", name));
  const index_t voxels = to.shape.extent.volume(), maps = to.shape.c;
  return append_per_map(graph, ready, to.shape, name, map_bytes<T>(to.shape.extent, 4), [=](index_t n, index_t c) {
    drop(*key, rate, (n * maps + c) * voxels, from.channel(n, c), to.channel(n, c), voxels, add);
  });
}

}  // namespace

template <class T>
void dropout(const RandomKey& key, double rate, index_t first, const T* x, T* y, index_t n) noexcept {
  drop(key, rate, first, x, y, n, false);
}

template <class T>
Ready append_dropout_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const View<T>& y, double rate,
                             const RandomKey* key) {
  return append<T>(graph, ready, x, y, rate, key, false, "dropout");
}

template <class T>
Ready append_dropout_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& dy, const View<T>& dx,
                              double rate, const RandomKey* key, bool add) {
  return append<T>(graph, ready, dy, dx, rate, key, add, "dropout_gradient");
}

template void dropout(const RandomKey&, double, index_t, const float*, float*, index_t) noexcept;
template void dropout(const RandomKey&, double, index_t, const double*, double*, index_t) noexcept;
template Ready append_dropout_forward<float>(TaskGraph&, const Ready&, const ConstView<float>&, const View<float>&,
                                             double, const RandomKey*);
template Ready append_dropout_forward<double>(TaskGraph&, const Ready&, const ConstView<double>&, const View<double>&,
                                              double, const RandomKey*);
template Ready append_dropout_backward<float>(TaskGraph&, const Ready&, const ConstView<float>&, const View<float>&,
                                              double, const RandomKey*, bool);
template Ready append_dropout_backward<double>(TaskGraph&, const Ready&, const ConstView<double>&, const View<double>&,
                                               double, const RandomKey*, bool);

}  // namespace convolume::ops
#endif  // HWY_ONCE
