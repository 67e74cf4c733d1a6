// Transposition between rows in memory, one per lane, and vectors of lanes, one per point. Loads assemble blocks of 128
// bits and stores take them apart. So only the transposition inside a block needs shuffles. This file is compiled once
// per SIMD target.
#if defined(CONVOLUME_CORE_SIMD_ROWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_CORE_SIMD_ROWS_INL_HPP
#undef CONVOLUME_CORE_SIMD_ROWS_INL_HPP
#else
#define CONVOLUME_CORE_SIMD_ROWS_INL_HPP
#endif

#include <array>

#include "hwy/highway.h"

#include "convolume/tensor.hpp"
#include "core/simd/unroll-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::simd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Number of elements of a row in one block.
template <class T>
inline constexpr int row_block = HWY_MAX_BYTES < 16 ? 1 : static_cast<int>(16 / sizeof(T));

#if HWY_TARGET != HWY_SCALAR
/// Returns a vector whose block b holds the elements from `at` on of row b * row_block.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, T* const* rows, std::ptrdiff_t at) {
  constexpr int s = row_block<T>;
  if constexpr (hn::MaxLanes(D()) == s) {
    return hn::LoadU(d, rows[0] + at);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadBlocks(half, rows + hn::MaxLanes(half), at), LoadBlocks(half, rows, at));
  }
}
template <class D, class V, class T = hn::TFromD<D>>
HWY_INLINE void StoreBlocks(D d, const V& v, T* const* rows, std::ptrdiff_t at) {
  constexpr int s = row_block<T>;
  if constexpr (hn::MaxLanes(D()) == s) {
    hn::StoreU(v, d, rows[0] + at);
  } else {
    const hn::Half<D> half;
    StoreBlocks(half, hn::LowerHalf(half, v), rows, at);
    StoreBlocks(half, hn::UpperHalf(half, v), rows + hn::MaxLanes(half), at);
  }
}

/// Transposes each block: element i of vector j becomes element j of vector i.
template <class D, class V>
HWY_INLINE void TransposeBlocks(D d, std::array<V, 4>& v) {
  const hn::Repartition<double, D> pairs;
  const auto a = hn::BitCast(pairs, hn::InterleaveLower(d, v[0], v[1]));
  const auto b = hn::BitCast(pairs, hn::InterleaveUpper(d, v[0], v[1]));
  const auto c = hn::BitCast(pairs, hn::InterleaveLower(d, v[2], v[3]));
  const auto e = hn::BitCast(pairs, hn::InterleaveUpper(d, v[2], v[3]));
  v[0] = hn::BitCast(d, hn::InterleaveLower(pairs, a, c));
  v[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, a, c));
  v[2] = hn::BitCast(d, hn::InterleaveLower(pairs, b, e));
  v[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, b, e));
}
template <class D, class V>
HWY_INLINE void TransposeBlocks(D d, std::array<V, 2>& v) {
  const V a = v[0];
  v[0] = hn::InterleaveLower(d, a, v[1]);
  v[1] = hn::InterleaveUpper(d, a, v[1]);
}

/// Transposes one block of columns of every row. StoreColumns is the opposite direction. The functions are not inlined:
/// there are more rows than general registers, so it is cheapest to read each row pointer from memory where it is used.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE void LoadColumns(D d, T* const* rows, index_t at, T* points, std::ptrdiff_t point_step) {
  constexpr int s = row_block<T>;
  std::array<hn::Vec<D>, s> v;
  Unroll<s>([&](auto r) CONVOLUME_ALWAYS_INLINE { v[r] = LoadBlocks(d, rows + r, at); });
  TransposeBlocks(d, v);
  Unroll<s>([&](auto r) CONVOLUME_ALWAYS_INLINE { hn::StoreU(v[r], d, points + r * point_step); });
}
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE void StoreColumns(D d, const T* points, std::ptrdiff_t point_step, T* const* rows, index_t at) {
  constexpr int s = row_block<T>;
  std::array<hn::Vec<D>, s> v;
  Unroll<s>([&](auto r) CONVOLUME_ALWAYS_INLINE { v[r] = hn::LoadU(d, points + r * point_step); });
  TransposeBlocks(d, v);
  Unroll<s>([&](auto r) CONVOLUME_ALWAYS_INLINE { StoreBlocks(d, v[r], rows + r, at); });
}

/// Whether squares of as many rows as lanes are transposed in registers, so that memory is accessed by whole vectors.
template <class D>
inline constexpr bool has_squares = hn::MaxLanes(D()) > row_block<hn::TFromD<D>>;

/// Swaps blocks between two vectors a and b. In every pair of neighbouring groups of `apart` blocks (the third
/// argument), a keeps its first group and receives the first group of b; b keeps its second group and receives the
/// second group of a.
template <class D, class V>
HWY_INLINE void ExchangeBlocks(D d, V& a, V& b, std::integral_constant<int, 1>) {
  const V low = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a);
  b = hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a));
  a = low;
  static_cast<void>(d);
}
template <class D, class V>
HWY_INLINE void ExchangeBlocks(D d, V& a, V& b, std::integral_constant<int, 2>) {
  const V low = hn::ConcatLowerLower(d, b, a);
  b = hn::ConcatUpperUpper(d, b, a);
  a = low;
}

/// Transposes a square of as many vectors as there are lanes.
template <class D, std::size_t N>
HWY_INLINE void TransposeSquare(D d, std::array<hn::Vec<D>, N>& v) {
  using V = hn::Vec<D>;
  constexpr int s = row_block<hn::TFromD<D>>, blocks = static_cast<int>(N) / s;
  Unroll<blocks>([&](auto b) CONVOLUME_ALWAYS_INLINE {
    std::array<V, s> part;
    Unroll<s>([&](auto r) CONVOLUME_ALWAYS_INLINE { part[r] = v[b * s + r]; });
    TransposeBlocks(d, part);
    Unroll<s>([&](auto r) CONVOLUME_ALWAYS_INLINE { v[b * s + r] = part[r]; });
  });
  // Now block c of v[b * s + r] holds what belongs into block b of v[c * s + r].
  Unroll<s>([&](auto r) CONVOLUME_ALWAYS_INLINE {
    if constexpr (blocks == 2) {
      ExchangeBlocks(d, v[r], v[s + r], std::integral_constant < int, HWY_MAX_BYTES == 32 ? 2 : 1 > {});
    } else {
      ExchangeBlocks(d, v[r], v[s + r], std::integral_constant<int, 1>{});
      ExchangeBlocks(d, v[2 * s + r], v[3 * s + r], std::integral_constant<int, 1>{});
      ExchangeBlocks(d, v[r], v[2 * s + r], std::integral_constant<int, 2>{});
      ExchangeBlocks(d, v[s + r], v[3 * s + r], std::integral_constant<int, 2>{});
    }
  });
}

template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE void LoadSquare(D d, T* const* rows, index_t at, T* points, std::ptrdiff_t point_step) {
  constexpr std::size_t n = hn::MaxLanes(D());
  std::array<hn::Vec<D>, n> v;
  Unroll<n>([&](auto i) CONVOLUME_ALWAYS_INLINE { v[i] = hn::LoadU(d, rows[i] + at); });
  TransposeSquare(d, v);
  Unroll<n>([&](auto i) CONVOLUME_ALWAYS_INLINE { hn::StoreU(v[i], d, points + i * point_step); });
}
/// With `NonTemporal`, the rows from `at` on must be aligned to a vector.
template <bool NonTemporal, class D, class T = hn::TFromD<D>>
HWY_NOINLINE void StoreSquare(D d, const T* points, std::ptrdiff_t point_step, T* const* rows, index_t at) {
  constexpr std::size_t n = hn::MaxLanes(D());
  std::array<hn::Vec<D>, n> v;
  Unroll<n>([&](auto i) CONVOLUME_ALWAYS_INLINE { v[i] = hn::LoadU(d, points + i * point_step); });
  TransposeSquare(d, v);
  Unroll<n>([&](auto i) CONVOLUME_ALWAYS_INLINE {
    if constexpr (NonTemporal) {
      hn::Stream(v[i], d, rows[i] + at);
    } else {
      hn::StoreU(v[i], d, rows[i] + at);
    }
  });
}

/// Whether parts of squares are transposed too: vectors have masks, so that no element beside the part is accessed.
/// Blocks of columns would access each row several times. If rows lie a power of two apart, they share one set of the
/// L1, which has fewer ways than there are rows, so each of these accesses would miss.
template <class D>
inline constexpr bool has_part_squares = has_squares<D>&& HWY_TARGET <= HWY_AVX3;

/// Transposes `count` columns, fewer than a square has.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE void LoadPartSquare(D d, T* const* rows, index_t at, index_t count, T* points, std::ptrdiff_t point_step) {
  constexpr std::size_t n = hn::MaxLanes(D());
  const auto mask = hn::FirstN(d, static_cast<std::size_t>(count));
  std::array<hn::Vec<D>, n> v;
  Unroll<n>([&](auto i) CONVOLUME_ALWAYS_INLINE { v[i] = hn::MaskedLoad(mask, d, rows[i] + at); });
  TransposeSquare(d, v);
  Unroll<n>([&](auto i) CONVOLUME_ALWAYS_INLINE {
    if (i < count) hn::StoreU(v[i], d, points + i * point_step);
  });
}
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE void StorePartSquare(D d, const T* points, std::ptrdiff_t point_step, T* const* rows, index_t at,
                                  index_t count) {
  constexpr std::size_t n = hn::MaxLanes(D());
  const auto mask = hn::FirstN(d, static_cast<std::size_t>(count));
  std::array<hn::Vec<D>, n> v;
  Unroll<n>([&](auto i)
                CONVOLUME_ALWAYS_INLINE { v[i] = i < count ? hn::LoadU(d, points + i * point_step) : hn::Zero(d); });
  TransposeSquare(d, v);
  Unroll<n>([&](auto i) CONVOLUME_ALWAYS_INLINE { hn::BlendedStore(v[i], mask, d, rows[i] + at); });
}
#endif

inline constexpr int cache_line_blocks = 4;  // 64 bytes
/// Prefetches a cache line of a quarter of the rows. One quarter at a time does not fill the queue of cache misses.
template <class T>
HWY_INLINE void PrefetchRows(T* const* rows, std::ptrdiff_t at, int lanes, int quarter) {
  for (int lane = quarter; lane < lanes; lane += cache_line_blocks) __builtin_prefetch(rows[lane] + at, 0, into_l2);
}

template <int Step, class T>
HWY_INLINE void CopyEvery(const T* from, index_t count, T* to) {
  for (index_t i = 0; i < count; ++i) to[i] = from[i * Step];
}
/// Copies to[i] = from[i * step], i < count. Small steps are compile-time constants, so that the compiler can vectorise
/// them.
template <class T>
HWY_INLINE void CopyStepped(const T* from, std::ptrdiff_t step, index_t count, T* to) {
  switch (step) {
    case 2:
      return CopyEvery<2>(from, count, to);
    case 3:
      return CopyEvery<3>(from, count, to);
    case 4:
      return CopyEvery<4>(from, count, to);
    default:
      for (index_t i = 0; i < count; ++i) to[i] = from[i * step];
  }
}

/// Stores element i * row_step of every row to points[i], i < count.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void LoadRows(D d, T* const* rows, std::ptrdiff_t row_step, T* points, std::ptrdiff_t point_step,
                         index_t count, [[maybe_unused]] std::ptrdiff_t ahead = 0) {
  const auto lanes = static_cast<int>(hn::Lanes(d));
  index_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr int s = row_block<T>;
  if (row_step == 1 && count >= s) {
    if constexpr (has_squares<D>) {
      for (; i + lanes <= count; i += lanes) {
        for (int quarter = 0; quarter < cache_line_blocks && ahead != 0; ++quarter) {
          PrefetchRows(rows, ahead + i, lanes, quarter);
        }
        LoadSquare(d, rows, i, points + i * point_step, point_step);
      }
    }
    if constexpr (has_part_squares<D>) {
      if (count - i > s) {
        for (int quarter = 0; quarter < cache_line_blocks && ahead != 0; ++quarter) {
          PrefetchRows(rows, ahead + i, lanes, quarter);
        }
        LoadPartSquare(d, rows, i, count - i, points + i * point_step, point_step);
        return;
      }
    }
    // The last block of columns may overlap the block before it.
    for (; i < count; i += s) {
      if (ahead != 0) PrefetchRows(rows, ahead + i, lanes, static_cast<int>(i / s) % cache_line_blocks);
      const index_t at = HWY_MIN(i, count - s);
      LoadColumns(d, rows, at, points + at * point_step, point_step);
    }
    return;
  }
#endif
  for (; i < count; ++i) {
    for (int lane = 0; lane < lanes; ++lane) points[i * point_step + lane] = rows[lane][i * row_step];
  }
}

/// Stores points[i] to element i * row_step of every row, i < count. With `NonTemporal`, squares are written
/// with non-temporal stores. Then row_step is 1, and the rows must be aligned to a vector.
template <bool NonTemporal = false, class D, class T = hn::TFromD<D>>
HWY_INLINE void StoreRows(D d, const T* points, std::ptrdiff_t point_step, T* const* rows, std::ptrdiff_t row_step,
                          index_t count) {
  const auto lanes = static_cast<int>(hn::Lanes(d));
  index_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr int s = row_block<T>;
  if (row_step == 1 && count >= s) {
    if constexpr (has_squares<D>) {
      for (; i + lanes <= count; i += lanes) {
        StoreSquare<NonTemporal>(d, points + i * point_step, point_step, rows, i);
      }
    }
    if constexpr (has_part_squares<D>) {
      if (count - i > s) return StorePartSquare(d, points + i * point_step, point_step, rows, i, count - i);
    }
    for (; i < count; i += s) {
      const index_t at = HWY_MIN(i, count - s);
      StoreColumns(d, points + at * point_step, point_step, rows, at);
    }
    return;
  }
#endif
  for (; i < count; ++i) {
    for (int lane = 0; lane < lanes; ++lane) rows[lane][i * row_step] = points[i * point_step + lane];
  }
}

/// Does the same as StoreRows() with non-temporal stores. Element `head` of every row is aligned to a cache line. The
/// elements before it are stored as usual. All elements are stored as usual if vectors are narrower than cache lines,
/// because non-temporal stores of such vectors would leave cache lines half written.
template <class D, std::size_t N, class T = hn::TFromD<D>>
HWY_INLINE void StoreRowsNonTemporal(D d, const T* points, std::ptrdiff_t point_step, std::array<T*, N> rows,
                                     index_t head, index_t count) {
  if constexpr (hn::MaxLanes(D()) * sizeof(T) == 64) {
    head = HWY_MIN(head, count);
    StoreRows(d, points, point_step, rows.data(), 1, head);
    for (T*& row : rows) row += head;
    StoreRows<true>(d, points + head * point_step, point_step, rows.data(), 1, count - head);
  } else {
    StoreRows(d, points, point_step, rows.data(), 1, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace convolume::simd
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
