// Sums of single taps for voxels of rows. This file is compiled once per SIMD target.
#if defined(CONVOLUME_CONV_VOXEL_SUMS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_CONV_VOXEL_SUMS_INL_HPP
#undef CONVOLUME_CONV_VOXEL_SUMS_INL_HPP
#else
#define CONVOLUME_CONV_VOXEL_SUMS_INL_HPP
#endif

#include <array>

#include "hwy/highway.h"

#include "conv/direct/direct_rows-inl.hpp"
#include "core/simd/unroll-inl.hpp"
#include "plan/nest/product_loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {
namespace {

/// The largest number of voxels whose sums fit into the registers, beside the registers for the factors. Each voxel has
/// two vectors.
constexpr int most_voxels = HWY_TARGET <= HWY_AVX3 ? 14 : 6;
/// The same for four vectors. This takes fewer instructions and fewer loads per multiply-add than two vectors.
constexpr int most_voxels_of_four = static_cast<int>(plan::most_row_voxels(4));
/// The largest number of voxels of one vector each, at any distance. Their addresses need general registers.
constexpr int most_distant_voxels = HWY_TARGET <= HWY_AVX3 ? 24 : 6;

/// A stride of 4. Convolutions of 4 x 4 x 4 voxels with this stride are the first layers of transformers.
constexpr int fourth_voxel = 4;

/// What a product reads. If the compiler knows the distance between voxels, addresses need no registers.
enum class Source {
  blocks,        ///< blocks of channels, side by side
  every_other,   ///< blocks of channels, two blocks apart
  apart,         ///< blocks of channels, at any distance
  row,           ///< a single channel, side by side
  every_fourth,  ///< a single channel, four voxels apart
  strided_row,   ///< a single channel, at any distance
};

/// Returns the distance between neighbouring voxels in elements, if a block has `channels` channels. Returns 0 if the
/// compiler does not know the distance.
constexpr int known_distance(Source source, int channels) {
  switch (source) {
    case Source::blocks:
      return channels;
    case Source::every_other:
      return 2 * channels;
    case Source::row:
      return 1;
    case Source::every_fourth:
      return fourth_voxel;
    case Source::apart:
    case Source::strided_row:
      break;
  }
  return 0;
}
constexpr bool one_channel(Source source) {
  return source == Source::row || source == Source::every_fourth || source == Source::strided_row;
}

/// The largest number of voxels whose sums of C vectors fit into the registers. Voxels at any distance need registers
/// for their addresses.
template <int C, Source S>
inline constexpr int most_voxels_of = C == 4                      ? most_voxels_of_four
                                      : C > 1                     ? most_voxels
                                      : known_distance(S, 1) != 0 ? 2 * most_voxels
                                                                  : most_distant_voxels;

/// Reads a term of the R voxels of a piece, in each of `Rows` rows. Of voxels at any distance every third one has a
/// pointer, because an address can add once and twice the distance.
template <int R, int Rows, Source S, class T>
class TermReader {
 public:
  HWY_INLINE TermReader(const T* first, std::ptrdiff_t next_row, std::ptrdiff_t distance)
      : next_row_(next_row), distance_(distance) {
    CONVOLUME_UNROLL
    for (std::size_t i = 0; i < count; ++i) {
      pointers_[i] = first + 3 * static_cast<std::ptrdiff_t>(i) * distance;
      // Hides how the pointers are related. Otherwise the compiler would keep one pointer and a multiple per voxel.
      if constexpr (count > 1) __asm__("" : "+r"(pointers_[i]));
    }
  }
  HWY_INLINE T get(int row, int r, int term) const {
    if constexpr (voxel != 0) {
      return pointers_[0][row * next_row_ + r * voxel + term];
    } else {
      return pointers_[static_cast<std::size_t>(r / 3)][r % 3 * distance_ + term];
    }
  }
  HWY_INLINE const T* first() const { return pointers_[0]; }
  /// Hides from the compiler where the voxels lie. Otherwise it would load those of later terms early and spill them.
  HWY_INLINE void hide() { __asm__("" : "+r"(pointers_[0])); }
  HWY_INLINE void skip(int terms) {
    CONVOLUME_UNROLL
    for (std::size_t i = 0; i < count; ++i) pointers_[i] += terms;
  }

 private:
  static constexpr int voxel = known_distance(S, block<T>);
  static_assert(Rows == 1 || voxel != 0);
  static constexpr std::size_t count = voxel != 0 ? 1 : (R + 2) / 3;
  std::array<const T*, count> pointers_;
  std::ptrdiff_t next_row_, distance_;
};

/// Returns the distance between the weights of two terms of a step.
template <Source S, class T>
HWY_INLINE std::ptrdiff_t WeightsStep(const VoxelProduct<T>& p) {
  return one_channel(S) ? p.weights_tap : block<T>;
}

/// Adds the terms of a step to the sums of the voxels [Begin, End) of a piece of R voxels, in each of `Rows` rows.
template <int R, int Rows, int Begin, int End, int C, Source S, class T, class Sums>
HWY_INLINE void AddStep(const VoxelProduct<T>& p, const DirectStep& step, const RowPiece<T>& piece, Sums& sums) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const std::ptrdiff_t second = SecondVector<T>(p.weights_column);
  const T* a = piece.source + step.source;
  const T* b = piece.weights + step.weights;
  TermReader<R, Rows, S, T> terms(a, piece.next_source, p.source_strides.voxel);
  const std::ptrdiff_t next_weights = WeightsStep<S>(p);
  const auto add_term = [&](int term) CONVOLUME_ALWAYS_INLINE {
    std::array<V, C> w;
    CONVOLUME_UNROLL
    for (std::size_t c = 0; c < C; ++c) w[c] = hn::LoadU(d, b + static_cast<std::ptrdiff_t>(c) * second);
    CONVOLUME_UNROLL
    for (int row = 0; row < Rows; ++row) {
      CONVOLUME_UNROLL
      for (int r = Begin; r < End; ++r) {
        const V x = hn::Set(d, terms.get(row, r, term));
        V* const sum = &sums[static_cast<std::size_t>((row * R + r) * C)];
        CONVOLUME_UNROLL
        for (std::size_t c = 0; c < C; ++c) sum[c] = hn::MulAdd(x, w[c], sum[c]);
      }
    }
    b += next_weights;
  };
  const T* const last = a + step.terms;
  // Four terms at a time have a fourth of the loop's instructions.
  if constexpr (S == Source::every_fourth || C == 4) {
    constexpr int together = 4;
    for (; last - terms.first() >= together; terms.skip(together)) {
      CONVOLUME_UNROLL
      for (int term = 0; term < together; ++term) {
        terms.hide();
        add_term(term);
      }
    }
    if (terms.first() == last) return;
  }
  do {
    if constexpr (S == Source::row) terms.hide();
    add_term(0);
    terms.skip(1);
  } while (terms.first() != last);
}

/// Computes R neighbouring voxels of C vectors of lanes, in one row or in two. `lanes` of all vectors belong to a
/// channel. The loop is that of SumSteps, but a call of SumSteps would be slower (docs/performance/log/direct.md).
template <int R, int Rows, int C, Source S, class T>
void SumVoxels(const VoxelProduct<T>& p, const RowPiece<T>& piece, const T* bias, index_t lanes) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr bool leaves_out_padding = !one_channel(S) && R > 1;
  std::array<V, Rows * R * C> sums;
  CONVOLUME_UNROLL
  for (V& sum : sums) sum = hn::Zero(d);
  StepReader<T> reader(p, piece);
  const DirectStep* const end = p.steps + p.step_count;
  for (const DirectStep* step = p.steps; step != end; ++step) {
    reader.begin_step();
    const VoxelProduct<T>& q = reader.product();
    const RowPiece<T>& part = reader.piece();
    if (part.prefetches && step->reads_first) PrefetchWeights<C>(q, *step, part.weights, WeightsStep<S>(q));
    if (!one_channel(S) && step->meets_first) PrefetchRow<R>(q, *step, part.source);
    if (leaves_out_padding && part.ends.first && step->pads_first) {
      AddStep<R, Rows, leaves_out_padding, R, C, S>(q, *step, part, sums);
    } else if (leaves_out_padding && part.ends.last && step->pads_last) {
      AddStep<R, Rows, 0, R - leaves_out_padding, C, S>(q, *step, part, sums);
    } else {
      AddStep<R, Rows, 0, R, C, S>(q, *step, part, sums);
    }
  }
  FinishSums<R, Rows, C>(p, piece, bias, lanes, sums);
}

/// Computes all voxels of C vectors of lanes, from vector number `v` on. If rows are so short that the registers hold
/// two of them, two rows are computed together and read the weights once.
template <int C, Source S, class T>
void SumRows(const VoxelProduct<T>& p, index_t v) {
  const LanesFrom<T> lanes(p, v);
  constexpr int most = most_voxels_of<C, S>, longest_pair = S == Source::blocks && C < 4 ? most / 2 : 0;
  constexpr Lengths lengths = C == 2 && S != Source::blocks ? Lengths::halves : lengths_of<T>;
  static constexpr auto kernels = PieceKernels<most, lengths, T>([](auto r) { return &SumVoxels<r, 1, C, S, T>; });
  index_t row = 0;
  if constexpr (longest_pair > 0) {
    static constexpr auto pair_kernels =
        PieceKernels<longest_pair, Lengths::all, T>([](auto r) { return &SumVoxels<r, 2, C, S, T>; });
    for (; p.count.x <= longest_pair && row + 2 <= p.count.z * p.count.y; row += 2) {
      RowPiece<T> piece = RowOf(p, lanes, row);
      const RowPiece<T> next = RowOf(p, lanes, row + 1);
      piece.next_source = next.source - piece.source;
      piece.next_target = next.target - piece.target;
      piece.ends = {.first = true, .last = true};
      pair_kernels[static_cast<std::size_t>(p.count.x - 1)](p, piece, lanes.bias, lanes.count);
    }
  }
  SumPieces(kernels, row, p, lanes);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
