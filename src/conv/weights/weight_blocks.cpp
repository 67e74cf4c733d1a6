#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/weights/weight_blocks.cpp"
#include "conv/weights/weight_blocks.hpp"

#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "core/simd/rows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace rows = simd::HWY_NAMESPACE;

template <class T>
using RowPointers = std::array<T*, static_cast<std::size_t>(fft::tile_lanes<T>)>;

/// Stores `count` taps of every lane, side by side, to `to[lane]`. In `from` the taps are `square` elements apart.
template <class T>
void StoreTaps(const T* from, index_t square, index_t count, const RowPointers<T>& to) {
  const hn::ScalableTag<T> d;
  for (index_t lane = 0; lane < WeightBlocks<T>::block; lane += static_cast<index_t>(hn::Lanes(d))) {
    rows::StoreRows(d, from + lane, square, to.data() + lane, 1, count);
  }
}

/// Calls body(z, y, first tap, number of taps) for the parts of a kernel whose voxels lie side by side.
template <class T, class Body>
void ForEachStretch(const View<T>& w, const Body& body) {
  const Extent3& k = w.shape.extent;
  if (w.dense_blocks()) {
    body(0, 0, 0, k.z * k.y * k.x);
    return;
  }
  for (index_t z = 0; z < k.z; ++z) {
    for (index_t y = 0; y < k.y; ++y) body(z, y, (z * k.y + y) * k.x, k.x);
  }
}

/// Copies one cache line, or zeros if `from` is null. With `non_temporal` it uses non-temporal stores.
template <bool non_temporal, class T>
HWY_INLINE void CopyLine(const T* from, T* to) {
  const hn::ScalableTag<T> d;
  for (index_t lane = 0; lane < WeightBlocks<T>::block; lane += static_cast<index_t>(hn::Lanes(d))) {
    const auto value = from == nullptr ? hn::Zero(d) : hn::LoadU(d, from + lane);
    non_temporal ? hn::Stream(value, d, to + lane) : hn::StoreU(value, d, to + lane);
  }
}

/// Returns whether neighbouring columns of w have their kernels side by side.
template <class U, class T>
bool IsSideBySide(const View<U>& w, const WeightBlocks<T>& layout) {
  return w.dense_blocks() && w.stride[1] == layout.taps;
}

/// Copies the kernels of some rows of w and `terms` neighbouring columns to staged[term][tap][lane]. Lanes without a
/// row get zeros, which are read from `zeros` (terms * taps elements). If the kernels lie side by side, the kernels of
/// a row are copied at once.
template <class T>
void StageKernels(const View<const T>& w, const WeightBlocks<T>& layout, index_t first_o, index_t lanes,
                  index_t first_c, index_t terms, T* zeros, T* staged) {
  constexpr index_t block = WeightBlocks<T>::block;
  const auto load = [&](index_t c, index_t z, index_t y, index_t count, T* to) {
    RowPointers<T> pointers;
    for (index_t o = 0; o < block; ++o) {
      pointers[static_cast<std::size_t>(o)] = o < lanes ? const_cast<T*>(&w(first_o + o, first_c + c, z, y, 0)) : zeros;
    }
    const hn::ScalableTag<T> d;
    for (index_t lane = 0; lane < block; lane += static_cast<index_t>(hn::Lanes(d))) {
      rows::LoadRows(d, pointers.data() + lane, 1, to + lane, block, count);
    }
  };
  if (lanes < block) std::fill_n(zeros, terms * layout.taps, T{0});
  if (IsSideBySide(w, layout)) return load(0, 0, 0, terms * layout.taps, staged);
  for (index_t c = 0; c < terms; ++c) {
    ForEachStretch(w, [&](index_t z, index_t y, index_t tap, index_t count) {
      load(c, z, y, count, staged + (c * layout.taps + tap) * block);
    });
  }
}

/// Copies staged[term][tap][lane] to `square_terms` lines of each tap. Lines without a term get zeros.
template <bool non_temporal, class T>
void CopySquares(const T* staged, index_t taps, index_t terms, index_t square_terms, T* to) {
  constexpr index_t block = WeightBlocks<T>::block;
  for (index_t tap = 0; tap < taps; ++tap) {
    const T* line = staged + tap * block;
    index_t c = 0;
    for (; c < terms; ++c, line += taps * block, to += block) CopyLine<non_temporal>(line, to);
    for (; c < square_terms; ++c, to += block) CopyLine<non_temporal, T>(nullptr, to);
  }
  if (non_temporal) hwy::FlushStream();
}

template <class T>
void Pack(const View<const T>& w, const WeightBlocks<T>& layout, index_t lane_block, index_t term_block,
          bool non_temporal, T* to, T* scratch) {
  constexpr index_t block = WeightBlocks<T>::block;
  const index_t first_o = lane_block * block, lanes = std::min(block, layout.lanes - first_o);
  const index_t first_c = term_block * block, terms = std::min(block, layout.terms - first_c);
  T* const staged = scratch;
  StageKernels(w, layout, first_o, lanes, first_c, terms, staged + block * layout.taps * block, staged);
  non_temporal ? CopySquares<true>(staged, layout.taps, terms, layout.square_terms(), to)
               : CopySquares<false>(staged, layout.taps, terms, layout.square_terms(), to);
}

/// Returns whether the kernels of `terms` neighbouring columns of a row of w are whole cache lines.
template <class T>
bool IsWholeLines(const View<T>& w, const WeightBlocks<T>& layout, index_t terms) {
  const auto lines = [](index_t elements) { return elements % WeightBlocks<T>::block == 0; };
  return IsSideBySide(w, layout) && lines(terms * layout.taps) && lines(w.stride[0]) &&
         lines(WeightBlocks<T>::block * layout.taps) && reinterpret_cast<std::uintptr_t>(w.data.get()) % 64 == 0;
}

/// Stores the kernels of some columns of a square to rows in which they lie side by side.
template <class T>
void StoreKernels(const T* from, const WeightBlocks<T>& layout, index_t terms, RowPointers<T> to) {
  constexpr index_t block = WeightBlocks<T>::block;
  if (layout.taps == 1) return StoreTaps(from, block, terms, to);
  for (index_t c = 0; c < terms; ++c) {
    StoreTaps(from + c * block, layout.square(), layout.taps, to);
    for (T*& row : to) row += layout.taps;
  }
}

/// Puts the kernels of each row of w side by side into scratch, and copies them to w with non-temporal stores, which do
/// not read the cache lines first.
template <class T>
void UnpackPastCaches(const T* from, const WeightBlocks<T>& layout, index_t first_o, index_t lanes, index_t first_c,
                      index_t terms, const View<T>& w, T* scratch) {
  constexpr index_t block = WeightBlocks<T>::block;
  const index_t row = terms * layout.taps;
  RowPointers<T> pointers;
  for (index_t o = 0; o < block; ++o) pointers[static_cast<std::size_t>(o)] = scratch + o * row;
  StoreKernels(from, layout, terms, pointers);
  for (index_t o = 0; o < lanes; ++o) {
    T* to = &w(first_o + o, first_c, 0, 0, 0);
    for (index_t i = 0; i < row; i += block) CopyLine<true>(scratch + o * row + i, to + i);
  }
  hwy::FlushStream();
}

template <class T>
void Unpack(const T* from, const WeightBlocks<T>& layout, index_t lane_block, index_t term_block, bool add,
            bool non_temporal, const View<T>& w, T* scratch) {
  constexpr index_t block = WeightBlocks<T>::block;
  const index_t first_o = lane_block * block, lanes = std::min(block, layout.lanes - first_o);
  const index_t first_c = term_block * block, terms = std::min(block, layout.terms - first_c);
  if (non_temporal && !add && IsWholeLines(w, layout, terms)) {
    return UnpackPastCaches(from, layout, first_o, lanes, first_c, terms, w, scratch);
  }
  // Stores rows of `count` elements from w(o, c, z, y, 0) on, or adds them.
  const auto unpack = [&](index_t c, index_t z, index_t y, index_t count, const auto& store) {
    RowPointers<T> pointers;
    for (index_t o = 0; o < block; ++o) {
      pointers[static_cast<std::size_t>(o)] =
          o < lanes && !add ? &w(first_o + o, first_c + c, z, y, 0) : scratch + o * count;
    }
    store(pointers);
    for (index_t o = 0; o < lanes && add; ++o) {
      T* row = &w(first_o + o, first_c + c, z, y, 0);
      for (index_t i = 0; i < count; ++i) row[i] += pointers[static_cast<std::size_t>(o)][i];
    }
  };
  if (IsSideBySide(w, layout)) {
    return unpack(0, 0, 0, terms * layout.taps,
                  [&](const RowPointers<T>& to) { StoreKernels(from, layout, terms, to); });
  }
  for (index_t c = 0; c < terms; ++c) {
    ForEachStretch(w, [&](index_t z, index_t y, index_t tap, index_t count) {
      unpack(c, z, y, count, [&](const RowPointers<T>& to) {
        StoreTaps(from + tap * layout.square() + c * block, layout.square(), count, to);
      });
    });
  }
}

template <bool non_temporal, class T>
void TransposeSquares(const T* from, index_t terms, index_t lanes, index_t count, T* to) {
  constexpr index_t block = WeightBlocks<T>::block;
  const hn::ScalableTag<T> d;
  HWY_ALIGN T staged[non_temporal ? block * block : 1];
  const std::array<T, static_cast<std::size_t>(block)> zeros{};
  for (index_t i = 0; i < count; ++i, from += terms * block, to += lanes * block) {
    RowPointers<T> pointers;
    for (index_t r = 0; r < block; ++r) {
      pointers[static_cast<std::size_t>(r)] = const_cast<T*>(r < terms ? from + r * block : zeros.data());
    }
    T* const transposed_squares = non_temporal ? staged : to;
    for (index_t lane = 0; lane < block; lane += static_cast<index_t>(hn::Lanes(d))) {
      rows::LoadRows(d, pointers.data() + lane, 1, transposed_squares + lane, block, lanes);
    }
    for (index_t line = 0; non_temporal && line < lanes * block; line += block) {
      CopyLine<true>(staged + line, to + line);
    }
  }
  if (non_temporal) hwy::FlushStream();
}

template <class T>
void Transpose(const T* from, index_t terms, index_t lanes, index_t count, bool non_temporal, T* to) {
  non_temporal ? TransposeSquares<true>(from, terms, lanes, count, to)
               : TransposeSquares<false>(from, terms, lanes, count, to);
}

}  // namespace

WeightKernels<float> WeightKernelsF32() { return {Pack<float>, Unpack<float>, Transpose<float>}; }
WeightKernels<double> WeightKernelsF64() { return {Pack<double>, Unpack<double>, Transpose<double>}; }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

HWY_EXPORT(WeightKernelsF32);
HWY_EXPORT(WeightKernelsF64);

template <>
WeightKernels<float> weight_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(WeightKernelsF32)();
}
template <>
WeightKernels<double> weight_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(WeightKernelsF64)();
}

}  // namespace convolume::conv
#endif  // HWY_ONCE
