#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/direct/direct_product.cpp"
#include "conv/direct/direct_product.hpp"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// This header comes after hwy/highway.h because it needs the macros of that header.
#include "hwy/cache_control.h"

#include "core/simd/unroll-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using simd::HWY_NAMESPACE::Unroll;

template <class T>
inline constexpr index_t block = channel_block(data_type_of<T>());
template <class T>
inline constexpr index_t vector_lanes = hn::MaxLanes(hn::ScalableTag<T>());

/// The largest numbers of voxels, and of channels of x, whose sums fit into the registers. Each needs two vectors,
/// beside the registers for the factors.
constexpr int most_voxels = HWY_TARGET <= HWY_AVX3 ? 14 : 6;
constexpr index_t most_gap_steps = 16;
constexpr int most_channels = HWY_TARGET <= HWY_AVX3 ? 8 : 6;

/// Returns the distance between two vectors that are computed together. They lie in one block of lanes, or in two
/// neighbouring blocks.
template <class T>
HWY_INLINE std::ptrdiff_t SecondVector(std::ptrdiff_t column) {
  return vector_lanes<T> == block<T> ? column : vector_lanes<T>;
}
/// Returns the place of vector `v` among the vectors of all columns.
template <class T>
HWY_INLINE std::ptrdiff_t VectorOffset(index_t v, std::ptrdiff_t column) {
  constexpr index_t per_block = block<T> / vector_lanes<T>;
  return v / per_block * column + v % per_block * vector_lanes<T>;
}

/// Whether a piece of a row contains the first voxel of the row, and the last voxel.
struct RowEnds {
  bool first, last;
};

/// The distance between voxels of the source. If the compiler knows the distance, addresses need no registers.
enum class Source {
  blocks,  ///< one block of channels
  rows,    ///< side by side, of one channel
  apart,   ///< any distance
  /// Any distance, and the same voxels of the next row are prefetched: processors do not recognise rows with gaps of
  /// cache lines.
  gaps,
};

/// Adds the terms of a step to the sums of the voxels [Begin, End) of a piece of R voxels, in each of `Rows` rows.
template <int R, int Rows, int Begin, int End, int C, Source S, class T, class Sums>
HWY_INLINE void AddStep(const VoxelProduct<T>& p, const DirectStep& step, const T* source, std::ptrdiff_t next_row,
                        const T* weights, Sums& sums) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const std::ptrdiff_t voxel = S == Source::blocks ? block<T> : S == Source::rows ? 1 : p.source_strides.voxel;
  const std::ptrdiff_t second = SecondVector<T>(p.weights_column);
  const T* a = source + step.source;
  const T* b = weights + step.weights;
  if constexpr (S == Source::gaps) {
    Unroll<(End - Begin) * Rows>([&](auto i) CONVOLUME_ALWAYS_INLINE {
      constexpr int row = i / (End - Begin), r = Begin + i % (End - Begin);
      __builtin_prefetch(a + row * next_row + r * voxel + p.source_strides.row);
    });
  }
  for (const T* const last = a + step.terms; a != last; ++a, b += block<T>) {
    std::array<V, C> w;
    Unroll<C>([&](auto c) CONVOLUME_ALWAYS_INLINE {
      w[c] = hn::LoadU(d, b + c * second);
      __builtin_prefetch(b + c * second + p.weights_next, 0, simd::HWY_NAMESPACE::into_l2);
    });
    Unroll<(End - Begin) * Rows>([&](auto i) CONVOLUME_ALWAYS_INLINE {
      constexpr int row = i / (End - Begin), r = Begin + i % (End - Begin), sum = (row * R + r) * C;
      const V x = hn::Set(d, a[row * next_row + r * voxel]);
      Unroll<C>([&](auto c) CONVOLUME_ALWAYS_INLINE { sums[sum + c] = hn::MulAdd(x, w[c], sums[sum + c]); });
    });
  }
}

/// A piece of a row. If rows are short, two rows are summed together, and this also gives the steps to the second row,
/// in elements.
template <class T>
struct RowPiece {
  const T* source;
  T* target;
  std::ptrdiff_t next_source, next_target;
  RowEnds ends;
};

/// Computes R neighbouring voxels of C vectors of lanes, in one row or in two.
template <int R, int Rows, int C, Source S, class T>
void SumVoxels(const VoxelProduct<T>& p, const RowPiece<T>& piece, const T* weights, const T* bias) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  // Padding is left out only in the kernels that take most of the time. The other kernels multiply it.
  constexpr bool leaves_out_padding = S == Source::blocks && C == 2 && R > 1;
  std::array<V, Rows * R * C> sums;
  Unroll<Rows * R * C>([&](auto i) CONVOLUME_ALWAYS_INLINE { sums[i] = hn::Zero(d); });
  const DirectStep* const end = p.steps + p.step_count;
  for (const DirectStep* step = p.steps; step != end; ++step) {
    if (leaves_out_padding && piece.ends.first && step->pads_first) {
      AddStep<R, Rows, leaves_out_padding, R, C, S>(p, *step, piece.source, piece.next_source, weights, sums);
    } else if (leaves_out_padding && piece.ends.last && step->pads_last) {
      AddStep<R, Rows, 0, R - leaves_out_padding, C, S>(p, *step, piece.source, piece.next_source, weights, sums);
    } else {
      AddStep<R, Rows, 0, R, C, S>(p, *step, piece.source, piece.next_source, weights, sums);
    }
  }
  const std::ptrdiff_t second_target = SecondVector<T>(p.target_column);
  // Non-temporal stores of narrower vectors would leave cache lines half written.
  const bool non_temporal = p.non_temporal && vector_lanes<T> == block<T>;
  Unroll<Rows * R>([&](auto i) CONVOLUME_ALWAYS_INLINE {
    Unroll<C>([&](auto c) CONVOLUME_ALWAYS_INLINE {
      T* to = piece.target + i / R * piece.next_target + i % R * p.target_strides.voxel + c * second_target;
      const T* start = p.add ? to : bias != nullptr ? bias + c * vector_lanes<T> : nullptr;
      const V sum = start != nullptr ? hn::Add(hn::LoadU(d, start), sums[i * C + c]) : sums[i * C + c];
      non_temporal ? hn::Stream(sum, d, to) : hn::StoreU(sum, d, to);
    });
  });
}

template <class T>
using VoxelKernel = void (*)(const VoxelProduct<T>&, const RowPiece<T>&, const T*, const T*);

template <int Rows, int C, Source S, class T, std::size_t... R>
constexpr std::array<VoxelKernel<T>, sizeof...(R)> VoxelKernels(std::index_sequence<R...>) {
  return {&SumVoxels<static_cast<int>(R) + 1, Rows, C, S, T>...};
}

/// Returns row number i, counted through all planes.
template <class T>
HWY_INLINE RowPiece<T> RowOf(const VoxelProduct<T>& p, T* target, index_t i) {
  const index_t z = i / p.count.y, y = i % p.count.y;
  return {p.source + z * p.source_strides.plane + y * p.source_strides.row,
          target + z * p.target_strides.plane + y * p.target_strides.row,
          0,
          0,
          {}};
}

/// Computes all voxels of C vectors of lanes. A row is divided into nearly equal pieces, so that no piece leaves many
/// registers idle. If rows are so short that the registers hold two of them, two rows are computed together and read
/// the weights once.
template <int C, Source S, class T>
void SumRows(const VoxelProduct<T>& p, const T* weights, T* target, const T* bias) {
  constexpr int longest_pair = S == Source::blocks && C == 2 ? most_voxels / 2 : 0;
  static constexpr auto kernels = VoxelKernels<1, C, S, T>(std::make_index_sequence<most_voxels>());
  static constexpr auto pair_kernels = VoxelKernels<2, C, S, T>(std::make_index_sequence<longest_pair>());
  const index_t pieces = (p.count.x + most_voxels - 1) / most_voxels;
  const index_t least = p.count.x / pieces, longer = p.count.x % pieces;
  const index_t rows = p.count.z * p.count.y;
  index_t row = 0;
  if constexpr (longest_pair > 0) {
    for (; p.count.x <= longest_pair && row + 2 <= rows; row += 2) {
      RowPiece<T> piece = RowOf(p, target, row);
      const RowPiece<T> next = RowOf(p, target, row + 1);
      piece.next_source = next.source - piece.source;
      piece.next_target = next.target - piece.target;
      piece.ends = {.first = true, .last = true};
      pair_kernels[static_cast<std::size_t>(p.count.x - 1)](p, piece, weights, bias);
    }
  }
  for (; row < rows; ++row) {
    RowPiece<T> piece = RowOf(p, target, row);
    for (index_t i = 0; i < pieces; ++i) {
      const index_t voxels = least + (i < longer ? 1 : 0);
      piece.ends = {.first = i == 0, .last = i + 1 == pieces};
      kernels[static_cast<std::size_t>(voxels - 1)](p, piece, weights, bias);
      piece.source += voxels * p.source_strides.voxel;
      piece.target += voxels * p.target_strides.voxel;
    }
  }
}

template <int C, class T>
void SumColumns(const VoxelProduct<T>& p, index_t vector) {
  const T* weights = p.weights + VectorOffset<T>(vector, p.weights_column);
  T* target = p.target + VectorOffset<T>(vector, p.target_column);
  const T* bias = p.bias != nullptr ? p.bias + vector * vector_lanes<T> : nullptr;
  switch (p.source_strides.voxel) {
    case block<T>:
      return SumRows<C, Source::blocks>(p, weights, target, bias);
    case 1:
      return SumRows<C, Source::rows>(p, weights, target, bias);
    default:
      // With more taps a line is read more often, and the prefetches cost more than they save.
      return p.source_strides.voxel > block<T> && p.step_count <= most_gap_steps
                 ? SumRows<C, Source::gaps>(p, weights, target, bias)
                 : SumRows<C, Source::apart>(p, weights, target, bias);
  }
}

template <class T>
void MultiplyVoxels(const VoxelProduct<T>& product) {
  const VoxelProduct<T> p = product;  // a copy, so that the compiler knows that no store changes it
  const index_t vectors = p.columns * (block<T> / vector_lanes<T>);
  for (index_t v = 0; v + 2 <= vectors; v += 2) SumColumns<2>(p, v);
  if constexpr (block<T> == vector_lanes<T>) {
    if (vectors % 2 != 0) SumColumns<1>(p, vectors - 1);
  }
  if (p.non_temporal) hwy::FlushStream();
}

/// Sums R neighbouring channels of x, for C vectors of lanes, over all voxels.
template <int R, int C, class T>
void SumChannels(const ChannelProduct<T>& p, const T* x, const T* dy, T* sums, std::size_t next) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const std::ptrdiff_t second = SecondVector<T>(p.dy_column), x_voxel = p.x_strides.voxel;
  const std::ptrdiff_t next_voxel = p.next_strides[next].voxel;
  std::array<V, R * C> total;
  Unroll<R * C>([&](auto i) CONVOLUME_ALWAYS_INLINE { total[i] = hn::Zero(d); });
  for (index_t z = 0; z < p.count.z; ++z) {
    for (index_t y = 0; y < p.count.y; ++y) {
      const T* a = x + z * p.x_strides.plane + y * p.x_strides.row;
      const T* b = dy + z * p.dy_strides.plane + y * p.dy_strides.row;
      const T* ahead = p.next[next] + z * p.next_strides[next].plane + y * p.next_strides[next].row;
      const T* const last = b + p.count.x * block<T>;
      for (; b != last; a += x_voxel, b += block<T>, ahead += next_voxel) {
        __builtin_prefetch(ahead, 0, simd::HWY_NAMESPACE::into_l2);
        std::array<V, C> g;
        Unroll<C>([&](auto c) CONVOLUME_ALWAYS_INLINE { g[c] = hn::LoadU(d, b + c * second); });
        Unroll<R>([&](auto r) CONVOLUME_ALWAYS_INLINE {
          const V value = hn::Set(d, a[r]);
          Unroll<C>([&](auto c)
                        CONVOLUME_ALWAYS_INLINE { total[r * C + c] = hn::MulAdd(value, g[c], total[r * C + c]); });
        });
      }
    }
  }
  const std::ptrdiff_t second_sums = SecondVector<T>(p.sums_column);
  Unroll<R>([&](auto r) CONVOLUME_ALWAYS_INLINE {
    Unroll<C>([&](auto c) CONVOLUME_ALWAYS_INLINE {
      T* to = sums + r * block<T> + c * second_sums;
      const V sum = total[r * C + c];
      hn::StoreU(p.add ? hn::Add(hn::LoadU(d, to), sum) : sum, d, to);
    });
  });
}

template <class T>
using ChannelKernel = void (*)(const ChannelProduct<T>&, const T*, const T*, T*, std::size_t);

template <int C, class T, std::size_t... R>
constexpr std::array<ChannelKernel<T>, sizeof...(R)> ChannelKernels(std::index_sequence<R...>) {
  return {&SumChannels<static_cast<int>(R) + 1, C, T>...};
}

template <int C, class T>
void SumAllChannels(const ChannelProduct<T>& p, index_t vector) {
  static constexpr auto kernels = ChannelKernels<C, T>(std::make_index_sequence<most_channels>());
  const T* dy = p.dy + VectorOffset<T>(vector, p.dy_column);
  T* sums = p.sums + VectorOffset<T>(vector, p.sums_column);
  const index_t pieces = (p.channels + most_channels - 1) / most_channels;
  const index_t least = p.channels / pieces, longer = p.channels % pieces;
  for (index_t piece = 0, channel = 0; piece < pieces; ++piece) {
    const index_t channels = least + (piece < longer ? 1 : 0);
    kernels[static_cast<std::size_t>(channels - 1)](p, p.x + channel, dy, sums + channel * block<T>,
                                                    static_cast<std::size_t>(piece % 2));
    channel += channels;
  }
}

template <class T>
void MultiplyChannels(const ChannelProduct<T>& product) {
  const ChannelProduct<T> p = product;
  const index_t vectors = p.columns * (block<T> / vector_lanes<T>);
  for (index_t v = 0; v + 2 <= vectors; v += 2) SumAllChannels<2>(p, v);
  if constexpr (block<T> == vector_lanes<T>) {
    if (vectors % 2 != 0) SumAllChannels<1>(p, vectors - 1);
  }
}

}  // namespace

DirectKernels<float> DirectKernelsF32() { return {MultiplyVoxels<float>, MultiplyChannels<float>}; }
DirectKernels<double> DirectKernelsF64() { return {MultiplyVoxels<double>, MultiplyChannels<double>}; }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

HWY_EXPORT(DirectKernelsF32);
HWY_EXPORT(DirectKernelsF64);

template <>
DirectKernels<float> direct_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(DirectKernelsF32)();
}
template <>
DirectKernels<double> direct_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(DirectKernelsF64)();
}

}  // namespace convolume::conv
#endif  // HWY_ONCE
