// Products whose source has one channel.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/direct/one_channel_product.cpp"
#include <algorithm>
#include <array>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "conv/direct/direct_product.hpp"
// This header comes after hwy/highway.h because it needs the macros of that header.
#include "hwy/cache_control.h"

#include "conv/direct/voxel_sums-inl.hpp"
#include "core/simd/unroll-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {
namespace {

/// Adds `Taps` terms of a step that read neighbouring voxels of the only channel, of which `a` is the first. Each voxel
/// is loaded once for all of them: with one vector of lanes, loads would otherwise take longer than multiply-adds.
template <int R, int Taps, class T, class Sums>
HWY_INLINE void AddNeighbours(const T* a, const T* weights, std::ptrdiff_t next_weights, Sums& sums) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  std::array<V, Taps> w;
  CONVOLUME_UNROLL
  for (int tap = 0; tap < Taps; ++tap) w[static_cast<std::size_t>(tap)] = hn::LoadU(d, weights + tap * next_weights);
  CONVOLUME_UNROLL
  for (int i = 0; i < R + Taps - 1; ++i) {
    const V x = hn::Set(d, a[i]);
    CONVOLUME_UNROLL
    for (int tap = 0; tap < Taps; ++tap) {
      if (i < tap || i - tap >= R) continue;
      V& sum = sums[static_cast<std::size_t>(i - tap)];
      sum = hn::MulAdd(x, w[static_cast<std::size_t>(tap)], sum);
    }
  }
}

/// Computes R neighbouring voxels of the only channel, for one vector of lanes, `Taps` terms at a time.
template <int R, int Taps, class T>
void SumNeighbours(const VoxelProduct<T>& p, const RowPiece<T>& piece, const T* bias, index_t lanes) {
  const auto add_step = [](const auto& reader, const DirectStep& step, auto& sums) CONVOLUME_ALWAYS_INLINE {
    const std::ptrdiff_t next_weights = reader.product().weights_tap;
    const T* a = reader.piece().source + step.source;
    const T* b = reader.piece().weights + step.weights;
    for (int term = 0; term < step.terms; term += Taps, a += Taps, b += Taps * next_weights) {
      // Otherwise the compiler would keep voxels for the next terms, for which registers are missing.
      __asm__("" : "+r"(a));
      AddNeighbours<R, Taps>(a, b, next_weights, sums);
    }
  };
  SumSteps<R, 1, 1>(p, piece, bias, lanes, add_step);
}

/// Computes all voxels for vector number `v` of the lanes, `Taps` terms at a time.
template <int Taps, class T>
void SumNeighbourRows(const VoxelProduct<T>& p, index_t v) {
  // One register holds a voxel. With more sums than this the compiler spills some.
  constexpr int most = std::min(25, 31 - Taps);
  static constexpr auto kernels =
      PieceKernels<most, Lengths::halves, T>([](auto r) { return &SumNeighbours<r, Taps, T>; });
  SumPieces(kernels, 0, p, {p, v});
}

/// Computes all voxels for vector number `v` of the lanes, as many terms at a time as are neighbours.
template <class T>
void SumNeighbourRows(const VoxelProduct<T>& p, index_t v) {
  switch (p.neighbours) {
    case 7:
      return SumNeighbourRows<7>(p, v);
    case 5:
      return SumNeighbourRows<5>(p, v);
    case 4:
      return SumNeighbourRows<4>(p, v);
    case 3:
      return SumNeighbourRows<3>(p, v);
    default:
      return SumNeighbourRows<2>(p, v);
  }
}

/// Computes all voxels of C vectors of lanes, from vector number `v` on.
template <int C, class T>
void SumColumns(const VoxelProduct<T>& p, index_t v) {
  const index_t voxel = p.source_strides.voxel;
  if (voxel == 1) return SumRows<C, Source::row>(p, v);
  if constexpr (C == 2) {
    if (voxel == fourth_voxel) return SumRows<C, Source::every_fourth>(p, v);
  }
  SumRows<C, Source::strided_row>(p, v);
}

template <class T>
void MultiplyChannel(const VoxelProduct<T>& p) {
  const index_t vectors = p.columns * (block<T> / vector_lanes<T>);
  index_t v = 0;
  if constexpr (block<T> == vector_lanes<T> && all_kernels<T>) {
    // With neighbours, one vector at a time is as fast as two, and pieces are longer.
    for (; v < vectors && p.neighbours > 1 && p.source_strides.voxel == 1; ++v) SumNeighbourRows(p, v);
  }
  for (; v + 2 <= vectors; v += 2) SumColumns<2>(p, v);
  if constexpr (block<T> == vector_lanes<T>) {
    if (v < vectors) SumColumns<1>(p, v);
  }
  if (p.non_temporal) hwy::FlushStream();
}

}  // namespace

VoxelKernel<float> ChannelVoxelKernelF32() { return MultiplyChannel<float>; }
VoxelKernel<double> ChannelVoxelKernelF64() { return MultiplyChannel<double>; }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

HWY_EXPORT(ChannelVoxelKernelF32);
HWY_EXPORT(ChannelVoxelKernelF64);

template <>
VoxelKernel<float> channel_voxel_kernel() noexcept {
  return HWY_DYNAMIC_DISPATCH(ChannelVoxelKernelF32)();
}
template <>
VoxelKernel<double> channel_voxel_kernel() noexcept {
  return HWY_DYNAMIC_DISPATCH(ChannelVoxelKernelF64)();
}

}  // namespace convolume::conv
#endif  // HWY_ONCE
