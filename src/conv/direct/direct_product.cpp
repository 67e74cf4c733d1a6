// Products whose source has voxels that lie at least a block apart.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/direct/direct_product.cpp"
#include "conv/direct/direct_product.hpp"

#include <array>
#include <type_traits>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// This header comes after hwy/highway.h because it needs the macros of that header.
#include "hwy/cache_control.h"

#include "conv/direct/voxel_sums-inl.hpp"
#include "core/simd/unroll-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {
namespace {

/// The largest number of voxels that are summed together if the registers hold the weights too.
constexpr int most_line_voxels = 12;

/// Computes R neighbouring voxels of one vector of lanes from a block of terms, whose weights are in registers.
template <int R, class T>
HWY_INLINE void SumLineVoxels(const VoxelProduct<T>& p, const RowPiece<T>& piece, const T* bias, index_t lanes,
                              const std::array<hn::Vec<hn::ScalableTag<T>>, block<T>>& w) {
  const hn::ScalableTag<T> d;
  std::array<hn::Vec<decltype(d)>, R> sums;
  CONVOLUME_UNROLL
  for (auto& sum : sums) sum = hn::Zero(d);
  CONVOLUME_UNROLL
  for (std::size_t term = 0; term < block<T>; ++term) {
    CONVOLUME_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      sums[r] = hn::MulAdd(hn::Set(d, piece.source[r * block<T> + term]), w[term], sums[r]);
    }
  }
  FinishSums<R, 1, 1>(p, piece, bias, lanes, sums);
}

/// Computes rows for vector number `v` of the lanes from one step of a block of terms. The registers hold the weights,
/// so there is one load per multiply-add, and no piece of a row waits for the one before it. Rows that lie side by side
/// are one row.
template <class T>
void SumLines(const VoxelProduct<T>& p, index_t v) {
  const hn::ScalableTag<T> d;
  const LanesFrom<T> lanes(p, v);
  const DirectStep& step = *p.steps;
  std::array<hn::Vec<decltype(d)>, block<T>> w;
  CONVOLUME_UNROLL
  for (std::size_t term = 0; term < block<T>; ++term) {
    w[term] = hn::LoadU(d, lanes.weights + step.weights + static_cast<std::ptrdiff_t>(term) * block<T>);
  }
  if (p.weights_next != 0 && step.reads_first) PrefetchWeights<1>(p, step, lanes.weights, block<T>);
  const bool joined = p.source_strides.row == p.count.x * block<T> && p.target_strides.row == p.count.x * block<T> &&
                      p.target_strides.voxel == block<T>;
  const index_t lines = joined ? 1 : p.count.y, voxels = joined ? p.count.y * p.count.x : p.count.x;
  for (index_t i = 0; i < p.count.z * lines; ++i) {
    RowPiece<T> piece = RowOf(p, lanes, i / lines * p.count.y + i % lines);
    piece.source += step.source;
    index_t left = voxels;
    const auto sum = [&](auto r) CONVOLUME_ALWAYS_INLINE {
      SumLineVoxels<r>(p, piece, lanes.bias, lanes.count, w);
      piece.source += r * block<T>;
      piece.target += r * p.target_strides.voxel;
      left -= r;
    };
    while (left >= most_line_voxels) sum(std::integral_constant<int, most_line_voxels>{});
    while (left >= 4) sum(std::integral_constant<int, 4>{});
    while (left > 0) sum(std::integral_constant<int, 1>{});
  }
}

/// Computes all voxels of C vectors of lanes, from vector number `v` on. Four vectors need a known distance between
/// voxels.
template <int C, class T>
void SumColumns(const VoxelProduct<T>& p, index_t v) {
  const index_t voxel = p.source_strides.voxel;
  if (voxel == block<T>) return SumRows<C, Source::blocks>(p, v);
  // Two vectors share a broadcast, whose address may have an index at no cost.
  if constexpr (C != 2 && all_kernels<T>) {
    if (voxel == 2 * block<T>) return SumRows<C, Source::every_other>(p, v);
  }
  if constexpr (C != 4) SumRows<C, Source::apart>(p, v);
}

template <class T>
void MultiplyBlocks(const VoxelProduct<T>& p) {
  const index_t vectors = p.columns * (block<T> / vector_lanes<T>);
  index_t v = 0;
  if constexpr (block<T> == vector_lanes<T> && all_kernels<T>) {
    const index_t voxel = p.source_strides.voxel;
    const bool fours = p.together == 4 && (voxel == block<T> || voxel == 2 * block<T>);
    for (; fours && v + 4 <= vectors; v += 4) SumColumns<4>(p, v);
  }
  for (; v + 2 <= vectors; v += 2) SumColumns<2>(p, v);
  if constexpr (block<T> == vector_lanes<T>) {
    if (v < vectors) {
      const DirectStep& step = *p.steps;
      const bool lines = p.step_count == 1 && step.terms == block<T> && !step.pads_first && !step.pads_last;
      if (lines && p.source_strides.voxel == block<T>) {
        SumLines(p, v);
      } else {
        SumColumns<1>(p, v);
      }
    }
  }
  if (p.non_temporal) hwy::FlushStream();
}

}  // namespace

VoxelKernel<float> VoxelKernelF32() { return MultiplyBlocks<float>; }
VoxelKernel<double> VoxelKernelF64() { return MultiplyBlocks<double>; }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

HWY_EXPORT(VoxelKernelF32);
HWY_EXPORT(VoxelKernelF64);

template <>
VoxelKernel<float> voxel_kernel() noexcept {
  return HWY_DYNAMIC_DISPATCH(VoxelKernelF32)();
}
template <>
VoxelKernel<double> voxel_kernel() noexcept {
  return HWY_DYNAMIC_DISPATCH(VoxelKernelF64)();
}

}  // namespace convolume::conv
#endif  // HWY_ONCE
