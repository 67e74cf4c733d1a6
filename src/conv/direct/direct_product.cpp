#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/direct/direct_product.cpp"
#include "conv/direct/direct_product.hpp"

#include <algorithm>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// This header comes after hwy/highway.h because it needs the macros of that header.
#include "hwy/cache_control.h"

#include "conv/direct/direct_rows-inl.hpp"
#include "conv/taps/tap_geometry.hpp"
#include "core/simd/unroll-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {
namespace {

/// The largest number of voxels whose sums fit into the registers, beside the registers for the factors. Each voxel has
/// two vectors.
constexpr int most_voxels = HWY_TARGET <= HWY_AVX3 ? 14 : 6;
/// The same for four vectors. This takes fewer instructions and fewer loads per multiply-add than two vectors.
constexpr int most_voxels_of_four = static_cast<int>(most_row_voxels(4));
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

template <int Rows, int C, Source S, class T, std::size_t... R>
constexpr std::array<PieceKernel<T>, sizeof...(R)> VoxelKernels(std::index_sequence<R...>) {
  return {&SumVoxels<static_cast<int>(R) + 1, Rows, C, S, T>...};
}

template <int Taps, class T, std::size_t... R>
constexpr std::array<PieceKernel<T>, sizeof...(R)> NeighbourKernels(std::index_sequence<R...>) {
  return {&SumNeighbours<static_cast<int>(R) + 1, Taps, T>...};
}

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

/// Computes rows for one vector of lanes from one step of a block of terms. The registers hold the weights, so there is
/// one load per multiply-add, and no piece of a row waits for the one before it. Rows that lie side by side are one
/// row.
template <class T>
void SumLines(const VoxelProduct<T>& p, const T* weights, T* target, const T* bias, index_t lanes) {
  const hn::ScalableTag<T> d;
  const DirectStep& step = *p.steps;
  std::array<hn::Vec<decltype(d)>, block<T>> w;
  CONVOLUME_UNROLL
  for (std::size_t term = 0; term < block<T>; ++term) {
    w[term] = hn::LoadU(d, weights + step.weights + static_cast<std::ptrdiff_t>(term) * block<T>);
  }
  if (p.weights_next != 0 && step.reads_first) PrefetchWeights<1>(p, step, weights, block<T>);
  const bool joined = p.source_strides.row == p.count.x * block<T> && p.target_strides.row == p.count.x * block<T> &&
                      p.target_strides.voxel == block<T>;
  const index_t lines = joined ? 1 : p.count.y, voxels = joined ? p.count.y * p.count.x : p.count.x;
  for (index_t i = 0; i < p.count.z * lines; ++i) {
    RowPiece<T> piece = RowOf(p, weights, target, i / lines * p.count.y + i % lines);
    piece.source += step.source;
    index_t left = voxels;
    const auto sum = [&](auto r) CONVOLUME_ALWAYS_INLINE {
      SumLineVoxels<r>(p, piece, bias, lanes, w);
      piece.source += r * block<T>;
      piece.target += r * p.target_strides.voxel;
      left -= r;
    };
    while (left >= most_line_voxels) sum(std::integral_constant<int, most_line_voxels>{});
    while (left >= 4) sum(std::integral_constant<int, 4>{});
    while (left > 0) sum(std::integral_constant<int, 1>{});
  }
}

/// Computes all voxels of the only channel for one vector of lanes, `Taps` terms at a time.
template <int Taps, class T>
void SumNeighbourRows(const VoxelProduct<T>& p, const T* weights, T* target, const T* bias, index_t lanes) {
  // One register holds a voxel. With more sums than this the compiler spills some.
  constexpr int most = std::min(25, 31 - Taps);
  static constexpr auto kernels = NeighbourKernels<Taps, T>(std::make_index_sequence<most>());
  SumPieces(kernels, 0, p, weights, target, bias, lanes);
}

/// Computes all voxels of C vectors of lanes. If rows are so short that the registers hold two of them, two rows are
/// computed together and read the weights once.
template <int C, Source S, class T>
void SumRows(const VoxelProduct<T>& p, const T* weights, T* target, const T* bias, index_t lanes) {
  if constexpr (C == 1 && S == Source::blocks) {
    const DirectStep& step = *p.steps;
    if (p.step_count == 1 && step.terms == block<T> && !step.pads_first && !step.pads_last) {
      return SumLines(p, weights, target, bias, lanes);
    }
  }
  if constexpr (C == 1 && S == Source::row) {
    if (p.neighbours == 7) return SumNeighbourRows<7>(p, weights, target, bias, lanes);
    if (p.neighbours == 5) return SumNeighbourRows<5>(p, weights, target, bias, lanes);
    if (p.neighbours == 4) return SumNeighbourRows<4>(p, weights, target, bias, lanes);
    if (p.neighbours == 3) return SumNeighbourRows<3>(p, weights, target, bias, lanes);
    if (p.neighbours == 2) return SumNeighbourRows<2>(p, weights, target, bias, lanes);
  }
  constexpr int most = most_voxels_of<C, S>, longest_pair = S == Source::blocks && C < 4 ? most / 2 : 0;
  static constexpr auto kernels = VoxelKernels<1, C, S, T>(std::make_index_sequence<most>());
  static constexpr auto pair_kernels = VoxelKernels<2, C, S, T>(std::make_index_sequence<longest_pair>());
  index_t row = 0;
  if constexpr (longest_pair > 0) {
    for (; p.count.x <= longest_pair && row + 2 <= p.count.z * p.count.y; row += 2) {
      RowPiece<T> piece = RowOf(p, weights, target, row);
      const RowPiece<T> next = RowOf(p, weights, target, row + 1);
      piece.next_source = next.source - piece.source;
      piece.next_target = next.target - piece.target;
      piece.ends = {.first = true, .last = true};
      pair_kernels[static_cast<std::size_t>(p.count.x - 1)](p, piece, bias, lanes);
    }
  }
  SumPieces(kernels, row, p, weights, target, bias, lanes);
}

/// Computes all voxels of C vectors of lanes, from number `vector` on. Four vectors need a known distance between
/// voxels of blocks.
template <int C, class T>
void SumColumns(const VoxelProduct<T>& p, index_t vector) {
  const T* weights = p.weights + VectorOffset<T>(vector, p.weights_column);
  T* target = p.target + VectorOffset<T>(vector, p.target_column);
  const T* bias = p.bias == nullptr ? nullptr : p.bias + vector * vector_lanes<T>;
  const index_t voxel = p.source_strides.voxel, lanes = p.lanes - vector * vector_lanes<T>;
  if (voxel == block<T>) return SumRows<C, Source::blocks>(p, weights, target, bias, lanes);
  // Two vectors share a broadcast, whose address may have an index at no cost.
  if constexpr (C != 2) {
    if (voxel == 2 * block<T>) return SumRows<C, Source::every_other>(p, weights, target, bias, lanes);
  }
  if constexpr (C == 2) {
    if (voxel == fourth_voxel) return SumRows<C, Source::every_fourth>(p, weights, target, bias, lanes);
  }
  if constexpr (C != 4) {
    if (voxel == 1) return SumRows<C, Source::row>(p, weights, target, bias, lanes);
    if (voxel < block<T>) return SumRows<C, Source::strided_row>(p, weights, target, bias, lanes);
    SumRows<C, Source::apart>(p, weights, target, bias, lanes);
  }
}

template <class T>
void MultiplyVoxels(const VoxelProduct<T>& p) {
  const index_t vectors = p.columns * (block<T> / vector_lanes<T>);
  index_t v = 0;
  if constexpr (block<T> == vector_lanes<T>) {
    const index_t voxel = p.source_strides.voxel;
    // With neighbours, one vector at a time is as fast as two, and pieces are longer.
    for (; v < vectors && p.neighbours > 1 && voxel == 1; ++v) SumColumns<1>(p, v);
    const bool fours = p.together == 4 && (voxel == block<T> || voxel == 2 * block<T>);
    for (; fours && v + 4 <= vectors; v += 4) SumColumns<4>(p, v);
  }
  for (; v + 2 <= vectors; v += 2) SumColumns<2>(p, v);
  if constexpr (block<T> == vector_lanes<T>) {
    if (v < vectors) SumColumns<1>(p, v);
  }
  if (p.non_temporal) hwy::FlushStream();
}

}  // namespace

VoxelKernel<float> VoxelKernelF32() { return MultiplyVoxels<float>; }
VoxelKernel<double> VoxelKernelF64() { return MultiplyVoxels<double>; }

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
