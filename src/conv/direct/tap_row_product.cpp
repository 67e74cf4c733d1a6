// Products whose steps are rows of taps: at each term, the taps of a row are added one after the other.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/direct/tap_row_product.cpp"
#include <algorithm>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "conv/direct/direct_product.hpp"
// This header comes after hwy/highway.h because it needs the macros of that header.
#include "hwy/cache_control.h"

#include "conv/direct/direct_rows-inl.hpp"
#include "conv/taps/tap_geometry.hpp"
#include "core/simd/unroll-inl.hpp"
#include "plan/nest/product_loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {
namespace {

/// The largest number of voxels of one vector whose sums fit into the registers, beside the weights of a row of taps.
constexpr int most_voxels = HWY_TARGET <= HWY_AVX3 ? 24 : 10;
/// The same for two vectors and rows of K taps. One register holds a voxel.
template <int K>
[[maybe_unused]] inline constexpr int most_pair_voxels = static_cast<int>(plan::most_row_voxels(2, K));
/// Whether the registers hold the weights of a row of taps.
constexpr bool keeps_taps = HWY_TARGET <= HWY_AVX3;

/// Returns whether rows are computed from their last voxel to the first one.
template <class T>
bool is_mirrored(const VoxelProduct<T>& p) {
  return p.target_strides.voxel < 0;
}

constexpr bool contains(unsigned set, index_t tap) { return (set >> static_cast<unsigned>(tap) & 1U) != 0; }

/// Prefetches what a row of taps reads in the next row of results, and what the next product reads in the place of its
/// weights, for C vectors of lanes.
template <int R, int C, class T>
HWY_INLINE void Prefetch(const VoxelProduct<T>& p, const RowPiece<T>& piece, const DirectStep& step) {
  const bool next_row = step.meets_first != 0 && p.source_term == 1;  // processors recognise rows without gaps
  const bool weights = piece.prefetches && step.reads_first;
  if (!next_row && !weights) return;
  DirectStep tap = step;
  for (int i = 0; i < step.taps; ++i, tap.source += p.source_tap, tap.weights += p.weights_tap) {
    if (next_row && contains(step.meets_first, i)) PrefetchRow<R>(p, tap, piece.source);
    if (weights) PrefetchWeights<C>(p, tap, piece.weights, block<T>);
  }
}

/// The sets of taps that read padding for the first voxel of a piece, and for the last one.
struct RowPads {
  unsigned first, last;
  template <class T>
  HWY_INLINE RowPads(const VoxelProduct<T>& p, const RowPiece<T>& piece, const DirectStep& step)
      : first(piece.ends.first ? (is_mirrored(p) ? step.pads_last : step.pads_first) : 0),
        last(piece.ends.last ? (is_mirrored(p) ? step.pads_first : step.pads_last) : 0) {}
  /// Returns whether the row reads padding instead of voxel i of `voxels`, if only one tap does at either end.
  HWY_INLINE bool replace(int i, int voxels) const { return (i == 0 && first != 0) || (i == voxels - 1 && last != 0); }
};

/// Sums the steps of a piece of R voxels and C vectors of lanes by add_row(product, piece, pads, step, sums).
template <int R, int C, class T, class AddRow>
HWY_INLINE void SumTapRows(const VoxelProduct<T>& p, const RowPiece<T>& piece, const T* bias, index_t lanes,
                           const AddRow& add_row) {
  const auto add_step = [&](auto& reader, const DirectStep& step, auto& sums) CONVOLUME_ALWAYS_INLINE {
    Prefetch<R, C>(reader.product(), reader.piece(), step);
    reader.begin_step();
    const RowPads pads(reader.product(), reader.piece(), step);
    add_row(reader.product(), reader.piece(), pads, step, sums);
  };
  SumSteps<R, 1, C>(p, piece, bias, lanes, add_step);
}

/// Computes R neighbouring voxels of one vector of lanes.
template <int R, class T>
void SumVoxels(const VoxelProduct<T>& p, const RowPiece<T>& piece, const T* bias, index_t lanes) {
  using V = hn::Vec<hn::ScalableTag<T>>;
  const auto add_row = [](const VoxelProduct<T>& q, const RowPiece<T>& part, RowPads pads, const DirectStep& step,
                          auto& sums) CONVOLUME_ALWAYS_INLINE {
    const hn::ScalableTag<T> d;
    for (int term = 0; term < step.terms; ++term) {
      for (int tap = 0; tap < step.taps; ++tap) {
        const V w = hn::LoadU(d, part.weights + step.weights + tap * q.weights_tap + term * block<T>);
        const T* a = part.source + step.source + tap * q.source_tap + term * q.source_term;
        const bool first = contains(pads.first, tap), last = contains(pads.last, tap);
        CONVOLUME_UNROLL
        for (int r = 0; r < R; ++r) {
          if ((r == 0 && first) || (r == R - 1 && last)) continue;
          V& sum = sums[static_cast<std::size_t>(r)];
          sum = hn::MulAdd(hn::Set(d, a[r * q.source_strides.voxel]), w, sum);
        }
      }
    }
  };
  SumTapRows<R, 1>(p, piece, bias, lanes, add_row);
}

/// Where a row of results reads padding.
enum class Padding {
  at_ends,  ///< at most the first tap for the first result, and the last tap for the last one
  full,     ///< all but one tap for the first result and for the last one
};

/// Reads voxels that lie one distance apart. One pointer serves nine voxels: an address adds the distance, or 3, 5 or 7
/// times the distance, multiplied by 1, 2, 4 or 8. So the registers hold all addresses, and few of them change from
/// term to term.
template <int Count, class T>
class VoxelReader {
 public:
  HWY_INLINE VoxelReader(const T* first, std::ptrdiff_t distance)
      : one_(distance * static_cast<std::ptrdiff_t>(sizeof(T))), three_(3 * one_), five_(5 * one_), seven_(7 * one_) {
    CONVOLUME_UNROLL
    for (std::size_t i = 0; i < pointers; ++i) {
      pointers_[i] = reinterpret_cast<const char*>(first) + 9 * static_cast<std::ptrdiff_t>(i) * one_;
    }
  }
  /// Returns voxel i. Voxels have to be read in their order.
  HWY_INLINE T get(int i) {
    const char*& pointer = pointers_[static_cast<std::size_t>(i / 9)];
    __asm__("" : "+r"(pointer));  // otherwise the compiler would load voxels first, for which registers are missing
    return *reinterpret_cast<const T*>(pointer + offset(i % 9));
  }
  HWY_INLINE void next_term(std::ptrdiff_t distance) {
    CONVOLUME_UNROLL
    for (const char*& pointer : pointers_) pointer += distance * static_cast<std::ptrdiff_t>(sizeof(T));
  }

 private:
  HWY_INLINE std::ptrdiff_t offset(int i) const {
    return i == 3 || i == 6 ? i / 3 * three_ : i == 5 ? five_ : i == 7 ? seven_ : i * one_;
  }
  static constexpr std::size_t pointers = (Count + 8) / 9;
  std::array<const char*, pointers> pointers_;
  std::ptrdiff_t one_, three_, five_, seven_;
};

/// Computes R neighbouring voxels of one vector of lanes, for rows of K taps and results that are one tap apart.
/// Registers hold the weights, and each voxel is loaded once for all taps.
template <int R, int K, Padding P, class T>
void SumSharedVoxels(const VoxelProduct<T>& p, const RowPiece<T>& piece, const T* bias, index_t lanes) {
  using V = hn::Vec<hn::ScalableTag<T>>;
  constexpr int padding = P == Padding::full ? K - 1 : 0, voxels = R + K - 1 - 2 * padding;
  const auto add_row = [](const VoxelProduct<T>& q, const RowPiece<T>& part, RowPads pads, const DirectStep& step,
                          auto& sums) CONVOLUME_ALWAYS_INLINE {
    const hn::ScalableTag<T> d;
    const std::ptrdiff_t weights_tap = q.weights_tap, source_term = q.source_term;
    VoxelReader<voxels, T> source(part.source + step.source + padding * q.source_tap, q.source_tap);
    const T* b = part.weights + step.weights;
    for (const T* const last = b + step.terms * block<T>; b != last; b += block<T>, source.next_term(source_term)) {
      std::array<V, K> w;
      CONVOLUME_UNROLL
      for (int tap = 0; tap < K; ++tap) w[static_cast<std::size_t>(tap)] = hn::LoadU(d, b + tap * weights_tap);
      __asm__("" : "+m"(pads));  // otherwise the compiler would keep them in vector registers
      CONVOLUME_UNROLL
      for (int i = 0; i < voxels; ++i) {
        if (P == Padding::at_ends && pads.replace(i, voxels)) continue;
        const V x = hn::Set(d, source.get(i));
        CONVOLUME_UNROLL
        for (int tap = 0; tap < K; ++tap) {
          const int r = i + padding - tap;
          if (r < 0 || r >= R) continue;
          V& sum = sums[static_cast<std::size_t>(r)];
          sum = hn::MulAdd(x, w[static_cast<std::size_t>(tap)], sum);
        }
      }
    }
  };
  SumTapRows<R, 1>(p, piece, bias, lanes, add_row);
}

/// The same for two vectors of lanes and voxels that are one block apart, in descending order if `Reversed`. A term of
/// 11 results and three taps takes 1.45 instructions per multiply-add. Single taps take 1.7, which slows them more if a
/// hyperthread on the same core is busy.
template <int R, int K, bool Reversed, class T>
void SumPairs(const VoxelProduct<T>& p, const RowPiece<T>& piece, const T* bias, index_t lanes) {
  using V = hn::Vec<hn::ScalableTag<T>>;
  constexpr int voxels = R + K - 1;
  constexpr std::ptrdiff_t next_voxel = Reversed ? -block<T> : block<T>;
  const auto add_row = [](const VoxelProduct<T>& q, const RowPiece<T>& part, RowPads pads, const DirectStep& step,
                          auto& sums) CONVOLUME_ALWAYS_INLINE {
    const hn::ScalableTag<T> d;
    const std::ptrdiff_t weights_tap = q.weights_tap, column = q.weights_column;
    const T* a = part.source + step.source;
    const T* b = part.weights + step.weights;
    for (const T* const last = b + step.terms * block<T>; b != last; b += block<T>, ++a) {
      std::array<V, 2 * K> w;
      CONVOLUME_UNROLL
      for (std::size_t tap = 0; tap < K; ++tap) {
        const T* of_tap = b + static_cast<std::ptrdiff_t>(tap) * weights_tap;
        w[2 * tap] = hn::LoadU(d, of_tap);
        w[2 * tap + 1] = hn::LoadU(d, of_tap + column);
      }
      CONVOLUME_UNROLL
      for (int i = 0; i < voxels; ++i) {
        if (pads.replace(i, voxels)) continue;
        __asm__("" : "+r"(a));  // otherwise the compiler would load voxels first, for which registers are missing
        const V x = hn::Set(d, a[i * next_voxel]);
        CONVOLUME_UNROLL
        for (int tap = 0; tap < K; ++tap) {
          if (i < tap || i - tap >= R) continue;
          V* const sum = &sums[static_cast<std::size_t>(2 * (i - tap))];
          sum[0] = hn::MulAdd(x, w[static_cast<std::size_t>(2 * tap)], sum[0]);
          sum[1] = hn::MulAdd(x, w[static_cast<std::size_t>(2 * tap + 1)], sum[1]);
        }
      }
    }
  };
  SumTapRows<R, 2>(p, piece, bias, lanes, add_row);
}

/// Returns whether each step is a row of `k` taps, results are one tap apart, and the row reads padding as
/// SumSharedVoxels and SumPairs expect it.
template <class T>
bool SharesVoxels(const VoxelProduct<T>& p, index_t k) {
  if (p.row_taps != k || p.source_strides.voxel != p.source_tap) return false;
  const unsigned last_tap = 1U << static_cast<unsigned>(k - 1);
  const bool mirrored = is_mirrored(p);
  return std::all_of(p.steps, p.steps + p.step_count, [&](const DirectStep& step) {
    const unsigned first = mirrored ? step.pads_last : step.pads_first;
    const unsigned last = mirrored ? step.pads_first : step.pads_last;
    return first <= 1U && (last == 0 || last == last_tap);
  });
}

/// Computes all pairs of columns with SumPairs if that is possible. Returns the number of columns.
template <int K, class T>
index_t SumPairsOfColumns(const VoxelProduct<T>& p) {
  const bool reversed = p.source_tap == -block<T>;
  const bool neighbours = (reversed || p.source_tap == block<T>)&&p.source_term == 1;
  if (p.columns < 2 || !neighbours || !SharesVoxels(p, K)) return 0;
  constexpr int most = most_pair_voxels<K>;
  static constexpr auto kernels =
      PieceKernels<most, lengths_of<T>, T>([](auto r) { return &SumPairs<r, K, false, T>; });
  static constexpr auto reversed_kernels =
      PieceKernels<most, lengths_of<T>, T>([](auto r) { return &SumPairs<r, K, true, T>; });
  index_t v = 0;
  for (; v + 2 <= p.columns; v += 2) SumPieces(reversed ? reversed_kernels : kernels, 0, p, {p, v});
  return v;
}

/// Computes the columns from number `v` on with SumSharedVoxels if that is possible. Returns whether it is.
template <int K, class T>
bool SumSharedColumns(const VoxelProduct<T>& p, index_t v) {
  static constexpr auto kernels =
      PieceKernels<most_voxels, Lengths::halves, T>([](auto r) { return &SumSharedVoxels<r, K, Padding::at_ends, T>; });
  if (!SharesVoxels(p, K)) return false;
  if constexpr (K > 2) {  // of two taps, only one reads padding at either end
    constexpr int most_padded = longest_of_all(lengths_of<T>, most_voxels);  // a row is one piece
    static constexpr auto padded_kernels =
        PieceKernels<most_padded, Lengths::all, T>([](auto r) { return &SumSharedVoxels<r, K, Padding::full, T>; });
    if (p.fully_padded && p.count.x >= K && p.count.x <= most_padded) {
      for (; v < p.columns; ++v) SumPieces(padded_kernels, 0, p, {p, v});
    }
  }
  for (; v < p.columns; ++v) SumPieces(kernels, 0, p, {p, v});
  return true;
}

template <class T>
void MultiplyTapRows(const VoxelProduct<T>& p) {
  static constexpr auto kernels =
      PieceKernels<most_voxels, Lengths::halves, T>([](auto r) { return &SumVoxels<r, T>; });
  const index_t vectors = p.columns * (block<T> / vector_lanes<T>);
  index_t v = 0;
  if constexpr (keeps_taps) {
    static_assert(block<T> == vector_lanes<T>);
    v = SumPairsOfColumns<3>(p);
    if constexpr (all_kernels<T>) {
      if (v == 0) v = SumPairsOfColumns<5>(p);
      if (v == 0) v = SumPairsOfColumns<2>(p);
    }
    const auto sum_rest = [&] {
      return SumSharedColumns<3>(p, v) || SumSharedColumns<5>(p, v) || SumSharedColumns<2>(p, v);
    };
    if (v < vectors && sum_rest()) v = vectors;
  }
  for (; v < vectors; ++v) SumPieces(kernels, 0, p, {p, v});
  if (p.non_temporal) hwy::FlushStream();
}

/// Backward data: from the last voxel of a row to the first one, voxels and taps run in the same direction.
template <class T>
void Multiply(const VoxelProduct<T>& product) {
  if (!keeps_taps || product.row_taps <= 1 || product.source_strides.voxel != -product.source_tap) {
    MultiplyTapRows(product);
    return;
  }
  VoxelProduct<T> p = product;
  p.source += (p.count.x - 1) * p.source_strides.voxel;
  p.target += (p.count.x - 1) * p.target_strides.voxel;
  p.source_strides.voxel = -p.source_strides.voxel;
  p.target_strides.voxel = -p.target_strides.voxel;
  MultiplyTapRows(p);
}

}  // namespace

VoxelKernel<float> TapRowKernelF32() { return Multiply<float>; }
VoxelKernel<double> TapRowKernelF64() { return Multiply<double>; }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

HWY_EXPORT(TapRowKernelF32);
HWY_EXPORT(TapRowKernelF64);

template <>
VoxelKernel<float> tap_row_kernel() noexcept {
  return HWY_DYNAMIC_DISPATCH(TapRowKernelF32)();
}
template <>
VoxelKernel<double> tap_row_kernel() noexcept {
  return HWY_DYNAMIC_DISPATCH(TapRowKernelF64)();
}

}  // namespace convolume::conv
#endif  // HWY_ONCE
