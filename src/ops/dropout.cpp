#include "ops/dropout.hpp"

#include <fmt/format.h>

#include "convolume/error.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/dropout.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "hwy/highway.h"

#include "ops/layout-inl.hpp"
#include "ops/random-inl.hpp"
#include "ops/simd-inl.hpp"

#ifndef CONVOLUME_OPS_DROPOUT_KERNELS
#define CONVOLUME_OPS_DROPOUT_KERNELS
namespace convolume::ops {
namespace {
/// `plain` handles n elements of one feature map, from element `first` of the tensor on. `blocked` handles a channel
/// block. Its feature maps begin `map` elements apart in the N C Z Y X numbering.
template <class T>
struct DropoutKernels {
  void (*plain)(const RandomKey&, double rate, index_t first, const T* x, T* y, index_t n, bool add);
  void (*blocked)(const RandomKey&, double rate, index_t first, index_t map, index_t channels, const T* x, T* y,
                  index_t voxels, bool add);
};
}  // namespace
}  // namespace convolume::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

/// Random numbers that are drawn at once, and voxels of a channel block that are handled at once. Both are multiples of
/// four, the words per counter.
constexpr index_t words_per_block = 256, voxels_per_block = 64;

/// Computes y = keep > 0 ? x · scale : 0, or adds it to y.
template <class T>
void scale_kept(const T* keep, double rate, const T* x, T* y, index_t n, bool add) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  const D d;
  const V scale = hn::Set(d, static_cast<T>(1 / (1 - rate))), zero = hn::Zero(d);
  const auto kept = [=](V k, V v) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(k, zero), hn::Mul(v, scale)); };
  if (add) {
    map_elements(
        d, y, n, [=](V k, V v, V before) HWY_ATTR { return hn::Add(before, kept(k, v)); }, keep, x,
        static_cast<const T*>(y));
  } else {
    map_elements(d, y, n, kept, keep, x);
  }
}

/// Sets keep[i] = 0 if element first + i is dropped, else 1. `words` is scratch for n + 3 words, rounded up to whole
/// vectors.
template <class T>
void draw(const RandomKey& key, double rate, index_t first, std::uint32_t* words, T* keep, index_t n) {
  const auto threshold = static_cast<std::uint32_t>(rate * 0x1p32);
  const index_t skip = first % 4;
  random_words(key, static_cast<std::uint64_t>(first / 4), words, skip + n);
  for (index_t i = 0; i < n; ++i) keep[i] = words[skip + i] < threshold ? T{0} : T{1};
}

template <class T>
void drop_plain(const RandomKey& key, double rate, index_t first, const T* x, T* y, index_t n, bool add) {
  HWY_ALIGN std::uint32_t words[words_per_block];
  HWY_ALIGN T keep[words_per_block];
  for (index_t i = 0; i < n;) {
    const index_t count = std::min(words_per_block - (first + i) % 4, n - i);
    draw(key, rate, first + i, words, keep, count);
    scale_kept(static_cast<const T*>(keep), rate, x + i, y + i, count, add);
    i += count;
  }
}

template <class T>
void drop_blocked(const RandomKey& key, double rate, index_t first, index_t map, index_t channels, const T* x, T* y,
                  index_t voxels, bool add) {
  constexpr index_t width = View<T>::lanes;
  HWY_ALIGN std::uint32_t words[words_per_block];
  HWY_ALIGN T keep[width * voxels_per_block], lanes[width * voxels_per_block];
  for (index_t v = 0; v < voxels; v += voxels_per_block) {
    const index_t count = std::min(voxels_per_block, voxels - v);
    for (index_t c = 0; c < channels; ++c) {
      draw(key, rate, first + c * map + v, words, keep + c * voxels_per_block, count);
    }
    to_lanes(static_cast<const T*>(keep), voxels_per_block, channels, count, lanes, width);
    scale_kept(static_cast<const T*>(lanes), rate, x + v * width, y + v * width, count * width, add);
  }
}

DropoutKernels<float> dropout_kernels_f32() { return {drop_plain<float>, drop_blocked<float>}; }
DropoutKernels<double> dropout_kernels_f64() { return {drop_plain<double>, drop_blocked<double>}; }

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {
namespace {

HWY_EXPORT(dropout_kernels_f32);
HWY_EXPORT(dropout_kernels_f64);

template <class T>
DropoutKernels<T> kernels() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(dropout_kernels_f32)();
  } else {
    return HWY_DYNAMIC_DISPATCH(dropout_kernels_f64)();
  }
}

template <class T>
Ready append(TaskGraph& graph, const Ready& ready, const View<const T>& from, const View<T>& to, double rate,
             const RandomKey* key, bool add, const char* name) {
  require_dense(name, "the input", from);
  require_dense(name, "the output", to);
  require_like(name, "the output", to, from);
  if (!(rate >= 0 && rate < 1)) {
    throw InvalidArgument(fmt::format("{}: the rate is {}; it must be in [0, 1)", name, rate));
  }
  if (key == nullptr) throw InvalidArgument(fmt::format("{}: the random key is missing; pass one", name));
  const Cut parts = cut(to);
  const index_t voxels = to.shape.extent.volume(), plane = to.shape.extent.y * to.shape.extent.x;
  auto tasks = append_parts(graph, parts, name, bytes_of<T>(4), same_part(ready, from, to), [=](const Part& part) {
    const index_t first = (part.n * to.shape.c + part.c0) * voxels + part.z0 * plane;
    const T* x = first_of(from, part);
    T* y = first_of(to, part);
    if (to.layout == Layout::plain) {
      kernels<T>().plain(*key, rate, first, x, y, elements_of(to, part), add);
    } else {
      kernels<T>().blocked(*key, rate, first, voxels, part.c1 - part.c0, x, y, (part.z1 - part.z0) * plane, add);
    }
  });
  return ready_of(graph, parts, std::move(tasks), to);
}

}  // namespace

template <class T>
void dropout(const RandomKey& key, double rate, index_t first, const T* x, T* y, index_t n) noexcept {
  kernels<T>().plain(key, rate, first, x, y, n, false);
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
