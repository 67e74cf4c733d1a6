#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/direct/line_product.cpp"
#include "conv/direct/line_product.hpp"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// This header comes after hwy/highway.h because it needs the macros of that header.
#include "hwy/cache_control.h"

#include "core/simd/partial_vectors-inl.hpp"
#include "core/simd/rows-inl.hpp"
#include "core/simd/unroll-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
inline constexpr index_t block = channel_block(data_type_of<T>());
template <class T>
inline constexpr index_t vector_lanes = hn::MaxLanes(hn::ScalableTag<T>());

/// The largest numbers of results, and of vectors of voxels, whose sums fit into the registers.
constexpr int most_results = HWY_TARGET <= HWY_AVX3 ? 8 : 6;
constexpr int most_vectors = HWY_TARGET <= HWY_AVX3 ? 3 : 2;

/// Returns whether results are written with non-temporal stores. Those of narrower vectors would leave cache lines half
/// written.
template <class T>
HWY_INLINE bool writes_lines(const LineProduct<T>& p) {
  return p.non_temporal && vector_lanes<T> * sizeof(T) == 64;
}

/// Stores `count` results.
template <class T, class V>
HWY_INLINE void StoreSum(const LineProduct<T>& p, V sum, T bias, T* to, index_t count) {
  const hn::ScalableTag<T> d;
  const V start = p.add ? simd::HWY_NAMESPACE::load_lanes(d, to, count) : hn::Set(d, bias);
  const V result = hn::Add(start, sum);
  if (count == vector_lanes<T> && writes_lines(p)) {
    hn::Stream(result, d, to);
  } else if (count == vector_lanes<T>) {
    hn::StoreU(result, d, to);
  } else {
    simd::HWY_NAMESPACE::store_first(result, d, to, count);
  }
}

/// Computes R results at C vectors of voxels. The last vector has `last` voxels. Prefetches what lies `ahead` elements
/// behind the source.
template <int R, int C, class T>
void SumLines(const LineProduct<T>& p, const T* source, const T* weights, T* target, const T* bias, index_t last,
              std::ptrdiff_t ahead) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  std::array<V, R * C> sums;
  CONVOLUME_UNROLL
  for (V& sum : sums) sum = hn::Zero(d);
  const bool whole = last == vector_lanes<T>;
  const std::ptrdiff_t step = p.source_channel;
  for (index_t k = 0; k < p.terms; ++k, source += step, weights += block<T>) {
    __builtin_prefetch(source + ahead);
    std::array<V, C> x;
    CONVOLUME_UNROLL
    for (index_t c = 0; c < C; ++c) {
      const T* from = source + c * vector_lanes<T>;
      x[static_cast<std::size_t>(c)] =
          c + 1 < C || whole ? hn::LoadU(d, from) : simd::HWY_NAMESPACE::load_first(d, from, last);
    }
    CONVOLUME_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      const V w = hn::Set(d, weights[r]);
      CONVOLUME_UNROLL
      for (std::size_t c = 0; c < C; ++c) sums[r * C + c] = hn::MulAdd(w, x[c], sums[r * C + c]);
    }
  }
  CONVOLUME_UNROLL
  for (index_t r = 0; r < R; ++r) {
    CONVOLUME_UNROLL
    for (index_t c = 0; c < C; ++c) {
      T* to = target + r * p.target_channel + c * vector_lanes<T>;
      if (!writes_lines(p)) __builtin_prefetch(to + C * vector_lanes<T>, 1);
      StoreSum(p, sums[static_cast<std::size_t>(r * C + c)], bias[r], to, c + 1 < C ? vector_lanes<T> : last);
    }
  }
}

template <class T>
using LineKernel = void (*)(const LineProduct<T>&, const T*, const T*, T*, const T*, index_t, std::ptrdiff_t);

template <int C, class T, std::size_t... R>
constexpr std::array<LineKernel<T>, sizeof...(R)> LineKernels(std::index_sequence<R...>) {
  return {&SumLines<static_cast<int>(R) + 1, C, T>...};
}

/// Computes all results at C vectors of voxels from `first` on. All results read the same cache lines. Meanwhile the
/// next vectors of voxels are prefetched, one vector for each group of results.
template <int C, class T>
void SumVoxels(const LineProduct<T>& p, index_t first, index_t last) {
  static constexpr auto kernels = LineKernels<C, T>(std::make_index_sequence<most_results>());
  index_t group = 0;
  for (index_t begin = 0; begin < p.results; begin += block<T>) {
    const index_t here = std::min(block<T>, p.results - begin), pieces = (here + most_results - 1) / most_results;
    for (index_t piece = 0, r = 0; piece < pieces; ++piece, ++group) {
      const index_t results = here / pieces + (piece < here % pieces ? 1 : 0), at = begin + r;
      kernels[static_cast<std::size_t>(results - 1)](
          p, p.source + first, p.weights + begin / block<T> * p.weights_column + r,
          p.target + at * p.target_channel + first, p.bias + at, last, (C + group % C) * vector_lanes<T>);
      r += results;
    }
  }
}

template <class T>
void Multiply(const LineProduct<T>& p) {
  constexpr index_t lanes = vector_lanes<T>, tile = most_vectors * lanes;
  index_t v = 0;
  for (; v + tile <= p.voxels; v += tile) SumVoxels<most_vectors>(p, v, lanes);
  for (; v < p.voxels; v += lanes) SumVoxels<1>(p, v, std::min(lanes, p.voxels - v));
  if (p.non_temporal) hwy::FlushStream();
}

/// Transposes as many vectors as there are lanes.
template <class D, std::size_t N>
HWY_INLINE void Transpose(D d, std::array<hn::Vec<D>, N>& v) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (simd::HWY_NAMESPACE::has_squares<D>) {
    simd::HWY_NAMESPACE::TransposeSquare(d, v);
  } else {
    simd::HWY_NAMESPACE::TransposeBlocks(d, v);
  }
#endif
  static_cast<void>(d);
  static_cast<void>(v);
}

/// Computes R results at a vector of voxels of a blocked source, of which `count` exist.
template <int R, class T>
void SumBlocks(const LineProduct<T>& p, index_t first, index_t count) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr index_t lanes = vector_lanes<T>;
  constexpr index_t ahead = 2 * lanes * block<T>;  // the time of memory, in voxels
  std::array<V, R> sums;
  CONVOLUME_UNROLL
  for (V& sum : sums) sum = hn::Zero(d);
  const T* weights = p.weights;
  for (index_t k = 0; k < p.terms; k += lanes, weights += lanes * block<T>) {
    const T* from = p.source + k / block<T> * p.source_channel + k % block<T> + first * block<T>;
    std::array<V, static_cast<std::size_t>(lanes)> x;
    CONVOLUME_UNROLL
    for (index_t i = 0; i < lanes; ++i) {
      const T* voxel = from + i * block<T>;
      __builtin_prefetch(voxel + ahead);
      x[static_cast<std::size_t>(i)] = i < count ? hn::LoadU(d, voxel) : hn::Zero(d);
    }
    Transpose(d, x);
    const index_t left = p.terms - k;
    CONVOLUME_UNROLL
    for (index_t i = 0; i < lanes; ++i) {
      if (i >= left) continue;
      const T* w = weights + i * block<T>;
      CONVOLUME_UNROLL
      for (std::size_t r = 0; r < R; ++r) {
        sums[r] = hn::MulAdd(hn::Set(d, w[r]), x[static_cast<std::size_t>(i)], sums[r]);
      }
    }
  }
  CONVOLUME_UNROLL
  for (index_t r = 0; r < R; ++r) {
    StoreSum(p, sums[static_cast<std::size_t>(r)], p.bias[r], p.target + r * p.target_channel + first, count);
  }
}

template <class T>
using BlockKernel = void (*)(const LineProduct<T>&, index_t, index_t);

template <class T, std::size_t... R>
constexpr std::array<BlockKernel<T>, sizeof...(R)> BlockKernels(std::index_sequence<R...>) {
  return {&SumBlocks<static_cast<int>(R) + 1, T>...};
}

template <class T>
void MultiplyBlocked(const LineProduct<T>& p) {
  static constexpr auto kernels = BlockKernels<T>(std::make_index_sequence<most_blocked_results>());
  const BlockKernel<T> kernel = kernels[static_cast<std::size_t>(p.results - 1)];
  for (index_t v = 0; v < p.voxels; v += vector_lanes<T>) kernel(p, v, std::min(vector_lanes<T>, p.voxels - v));
  if (p.non_temporal) hwy::FlushStream();
}

}  // namespace

LineProductKernels<float> LineProductKernelsF32() {
  return {Multiply<float>, MultiplyBlocked<float>, most_vectors * vector_lanes<float>};
}
LineProductKernels<double> LineProductKernelsF64() {
  return {Multiply<double>, MultiplyBlocked<double>, most_vectors * vector_lanes<double>};
}

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

HWY_EXPORT(LineProductKernelsF32);
HWY_EXPORT(LineProductKernelsF64);

template <>
LineProductKernels<float> line_product_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(LineProductKernelsF32)();
}
template <>
LineProductKernels<double> line_product_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(LineProductKernelsF64)();
}

}  // namespace convolume::conv
#endif  // HWY_ONCE
