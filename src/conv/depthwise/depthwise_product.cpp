#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/depthwise/depthwise_product.cpp"
#include "conv/depthwise/depthwise_product.hpp"

#include <algorithm>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

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

/// The largest numbers of voxels, and of taps, whose sums fit into the registers.
constexpr int most_voxels = HWY_TARGET <= HWY_AVX3 ? 16 : 10;
constexpr int most_sums = HWY_TARGET <= HWY_AVX3 ? 16 : 12;
constexpr int most_taps = 8;
/// Whether the registers hold the weights of a row of taps beside the sums.
constexpr bool keeps_taps = HWY_TARGET <= HWY_AVX3;

/// Where the next voxel of a row of the source lies.
enum class Next { after, before, apart };
/// Returns its distance in elements. `distance` is that of voxels that lie apart.
template <Next N, class T>
constexpr std::ptrdiff_t Distance(std::ptrdiff_t distance) {
  return N == Next::after ? block<T> : N == Next::before ? -block<T> : distance;
}

/// Adds K neighbouring taps to the sums of R neighbouring voxels. Each voxel of the source is loaded once and serves
/// all taps. Every sum takes its taps in their order.
template <int R, int K, Next N, class T, class Sums>
HWY_INLINE void AddTaps(const T* source, const T* weights, std::ptrdiff_t weights_tap, Sums& sums) {
  const hn::ScalableTag<T> d;
  std::array<hn::Vec<decltype(d)>, K> w;
  CONVOLUME_UNROLL
  for (int k = 0; k < K; ++k) w[static_cast<std::size_t>(k)] = hn::LoadU(d, weights + k * weights_tap);
  CONVOLUME_UNROLL
  for (int i = 0; i < R + K - 1; ++i) {
    const auto x = hn::LoadU(d, source + i * Distance<N, T>(0));
    CONVOLUME_UNROLL
    for (int k = 0; k < K; ++k) {
      if (i < k || i - k >= R) continue;
      auto& sum = sums[static_cast<std::size_t>(i - k)];
      sum = hn::MulAdd(x, w[static_cast<std::size_t>(k)], sum);
    }
  }
}

/// Computes the sums of R neighbouring voxels of one vector of lanes.
template <int R, Next N, class T>
void SumVoxels(const TapProduct<T>& p, const T* source, const T* weights, T* target, const T* bias) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const std::ptrdiff_t voxel = Distance<N, T>(p.source_strides.voxel);
  const std::ptrdiff_t source_tap = p.source_tap, weights_tap = p.weights_tap;
  std::array<V, R> sums;
  CONVOLUME_UNROLL
  for (V& sum : sums) sum = hn::Zero(d);
  const DirectStep* const end = p.steps + p.step_count;
  for (const DirectStep* step = p.steps; step != end; ++step) {
    const T* a = source + step->source;
    const T* b = weights + step->weights;
    if constexpr (keeps_taps && N != Next::apart) {  // rows of three taps gain nothing
      if (step->terms == 7 && source_tap == voxel) {
        AddTaps<R, 7, N>(a, b, weights_tap, sums);
        continue;
      }
      if (step->terms == 5 && source_tap == voxel) {
        AddTaps<R, 5, N>(a, b, weights_tap, sums);
        continue;
      }
    }
    for (index_t k = step->terms; k > 0; --k, a += source_tap, b += weights_tap) {
      const V w = hn::LoadU(d, b);
      CONVOLUME_UNROLL
      for (int r = 0; r < R; ++r) {
        V& sum = sums[static_cast<std::size_t>(r)];
        sum = hn::MulAdd(hn::LoadU(d, a + r * voxel), w, sum);
      }
    }
  }
  const std::ptrdiff_t target_voxel = p.target_strides.voxel;
  const bool add = p.add;
  CONVOLUME_UNROLL
  for (int r = 0; r < R; ++r) {
    T* to = target + r * target_voxel;
    const T* start = add ? to : bias;
    const V sum = sums[static_cast<std::size_t>(r)];
    hn::StoreU(start != nullptr ? hn::Add(hn::LoadU(d, start), sum) : sum, d, to);
  }
}

template <class T>
using VoxelKernel = void (*)(const TapProduct<T>&, const T*, const T*, T*, const T*);

template <Next N, class T, std::size_t... R>
constexpr std::array<VoxelKernel<T>, sizeof...(R)> VoxelKernels(std::index_sequence<R...>) {
  return {&SumVoxels<static_cast<int>(R) + 1, N, T>...};
}

/// Computes all voxels of one vector of lanes. A row is divided into nearly equal pieces, so that no piece leaves many
/// registers idle.
template <Next N, class T>
void SumRows(const TapProduct<T>& p, index_t vector) {
  static constexpr auto kernels = VoxelKernels<N, T>(std::make_index_sequence<most_voxels>());
  const index_t pieces = (p.count.x + most_voxels - 1) / most_voxels;
  const index_t least = p.count.x / pieces, longer = p.count.x % pieces;
  const T* bias = p.bias != nullptr ? p.bias + vector : nullptr;
  for (index_t z = 0; z < p.count.z; ++z) {
    for (index_t y = 0; y < p.count.y; ++y) {
      const T* a = p.source + vector + z * p.source_strides.plane + y * p.source_strides.row;
      T* c = p.target + vector + z * p.target_strides.plane + y * p.target_strides.row;
      for (index_t piece = 0; piece < pieces; ++piece) {
        const index_t voxels = least + (piece < longer ? 1 : 0);
        kernels[static_cast<std::size_t>(voxels - 1)](p, a, p.weights + vector, c, bias);
        a += voxels * p.source_strides.voxel;
        c += voxels * p.target_strides.voxel;
      }
    }
  }
}

template <class T>
void MultiplyVoxels(const TapProduct<T>& product) {
  if (keeps_taps && product.source_strides.voxel == block<T> && product.source_tap == -block<T>) {
    // Backward data: from the last voxel of a row to the first one, voxels and taps run in the same direction.
    TapProduct<T> p = product;
    p.source += (p.count.x - 1) * p.source_strides.voxel;
    p.target += (p.count.x - 1) * p.target_strides.voxel;
    p.source_strides.voxel = -p.source_strides.voxel;
    p.target_strides.voxel = -p.target_strides.voxel;
    for (index_t vector = 0; vector < block<T>; vector += vector_lanes<T>) SumRows<Next::before>(p, vector);
    return;
  }
  for (index_t vector = 0; vector < block<T>; vector += vector_lanes<T>) {
    product.source_strides.voxel == block<T> ? SumRows<Next::after>(product, vector)
                                             : SumRows<Next::apart>(product, vector);
  }
}

/// How many voxels of dy the registers hold beside the sums of the taps.
constexpr int held_voxels = 4;

/// Adds neighbouring voxels of dy to the sums of K neighbouring taps. Each voxel of x is loaded once and serves all
/// taps. Every sum takes its voxels in their order.
template <int K, class T, class Vectors>
HWY_INLINE void AddVoxels(const T* x, const Vectors& dy, hn::Vec<hn::ScalableTag<T>>* sums) {
  const hn::ScalableTag<T> d;
  CONVOLUME_UNROLL
  for (int i = 0; i < held_voxels + K - 1; ++i) {
    const auto value = hn::LoadU(d, x + i * block<T>);
    CONVOLUME_UNROLL
    for (int v = 0; v < held_voxels; ++v) {
      if (i < v || i - v >= K) continue;
      sums[i - v] = hn::MulAdd(value, dy[static_cast<std::size_t>(v)], sums[i - v]);
    }
  }
}

/// Sums R rows of K taps over all voxels. If Dense, the voxels that neighbouring taps read lie side by side.
template <int R, int K, bool Dense, class T>
void SumTaps(const TapSums<T>& p, index_t first_tap, index_t vector) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const std::ptrdiff_t tap = Dense ? block<T> : p.x_tap, x_voxel = p.x_strides.voxel, dy_voxel = p.dy_strides.voxel;
  std::array<V, R * K> total;
  CONVOLUME_UNROLL
  for (V& sum : total) sum = hn::Zero(d);
  for (index_t z = 0; z < p.count.z; ++z) {
    for (index_t y = 0; y < p.count.y; ++y) {
      std::array<const T*, R> a;
      CONVOLUME_UNROLL
      for (std::size_t r = 0; r < R; ++r) {
        a[r] = p.x[r] + vector + first_tap * tap + z * p.x_strides.plane + y * p.x_strides.row;
      }
      const T* b = p.dy + vector + z * p.dy_strides.plane + y * p.dy_strides.row;
      index_t left = p.count.x;
      if constexpr (keeps_taps && Dense && K > 3) {  // without strides, voxels share what they read
        for (; x_voxel == block<T> && left >= held_voxels; left -= held_voxels) {
          std::array<V, held_voxels> g;
          CONVOLUME_UNROLL
          for (int v = 0; v < held_voxels; ++v) g[static_cast<std::size_t>(v)] = hn::LoadU(d, b + v * dy_voxel);
          CONVOLUME_UNROLL
          for (std::size_t r = 0; r < R; ++r) {
            AddVoxels<K>(a[r], g, total.data() + r * K);
            a[r] += held_voxels * block<T>;
          }
          b += held_voxels * dy_voxel;
        }
      }
      for (; left > 0; --left, b += dy_voxel) {
        const V g = hn::LoadU(d, b);
        CONVOLUME_UNROLL
        for (std::size_t r = 0; r < R; ++r) {
          CONVOLUME_UNROLL
          for (std::size_t k = 0; k < K; ++k) {
            V& sum = total[r * K + k];
            sum = hn::MulAdd(hn::LoadU(d, a[r] + static_cast<std::ptrdiff_t>(k) * tap), g, sum);
          }
          a[r] += x_voxel;
        }
      }
    }
  }
  CONVOLUME_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    CONVOLUME_UNROLL
    for (std::size_t k = 0; k < K; ++k) {
      T* to = p.sums[r] + (first_tap + static_cast<index_t>(k)) * block<T> + vector;
      hn::StoreU(hn::Add(hn::LoadU(d, to), total[r * K + k]), d, to);
    }
  }
}

template <class T>
using TapKernel = void (*)(const TapSums<T>&, index_t, index_t);

template <int R, int K, bool Dense, class T>
constexpr TapKernel<T> TapKernelOf() {
  if constexpr (R * K <= most_sums) return &SumTaps<R, K, Dense, T>;
  return nullptr;
}

/// Returns the kernels in the order [rows - 1][taps - 1].
template <bool Dense, class T, std::size_t... I>
constexpr std::array<TapKernel<T>, sizeof...(I)> TapKernels(std::index_sequence<I...>) {
  return {TapKernelOf<static_cast<int>(I) / most_taps + 1, static_cast<int>(I) % most_taps + 1, Dense, T>()...};
}

template <bool Dense, class T>
void SumAllTaps(const TapSums<T>& p) {
  static constexpr auto kernels =
      TapKernels<Dense, T>(std::make_index_sequence<most_tap_rows* static_cast<std::size_t>(most_taps)>());
  const index_t pieces = (p.taps + most_taps - 1) / most_taps;
  const index_t least = p.taps / pieces, longer = p.taps % pieces;
  for (index_t vector = 0; vector < block<T>; vector += vector_lanes<T>) {
    for (index_t piece = 0, first = 0; piece < pieces; ++piece) {
      const index_t taps = least + (piece < longer ? 1 : 0);
      kernels[static_cast<std::size_t>((p.rows - 1) * most_taps + taps - 1)](p, first, vector);
      first += taps;
    }
  }
}

template <class T>
void MultiplyTaps(const TapSums<T>& p) {
  p.x_tap == block<T> ? SumAllTaps<true>(p) : SumAllTaps<false>(p);
}

index_t RowsTogether(index_t taps) {
  const index_t pieces = (taps + most_taps - 1) / most_taps, longest = (taps + pieces - 1) / pieces;
  return std::clamp<index_t>(most_sums / longest, 1, most_tap_rows);
}

}  // namespace

DepthwiseKernels<float> DepthwiseKernelsF32() { return {MultiplyVoxels<float>, MultiplyTaps<float>, RowsTogether}; }
DepthwiseKernels<double> DepthwiseKernelsF64() { return {MultiplyVoxels<double>, MultiplyTaps<double>, RowsTogether}; }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

HWY_EXPORT(DepthwiseKernelsF32);
HWY_EXPORT(DepthwiseKernelsF64);

template <>
DepthwiseKernels<float> depthwise_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(DepthwiseKernelsF32)();
}
template <>
DepthwiseKernels<double> depthwise_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(DepthwiseKernelsF64)();
}

}  // namespace convolume::conv
#endif  // HWY_ONCE
