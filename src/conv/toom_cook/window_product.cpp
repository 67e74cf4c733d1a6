#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/toom_cook/window_product.cpp"
#include "conv/toom_cook/window_product.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "core/simd/unroll-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using plan::register_sums_in_turn;
using plan::terms_in_register;

/// The largest number of rows whose sums, two vectors each, fit into the registers.
constexpr int most_rows = HWY_TARGET <= HWY_AVX3 ? 12 : 6;
/// Sums of 2^k parts need k + 1 places. So this is enough for 2^30 channels.
constexpr int most_places = 24;

/// Sums up to this number of terms are added in turn.
constexpr index_t terms_in_turn = terms_in_register * register_sums_in_turn;

/// Computes R rows of V vectors from `terms` terms that are summed in registers, and writes the sums to `c`, or adds
/// them. The second vector lies `b_next` and `c_next` elements behind the first.
template <int R, int V, class T>
HWY_INLINE void SumTile(const WindowProduct<T>& p, const T* a, const T* b, std::ptrdiff_t b_next, index_t terms, T* c,
                        std::ptrdiff_t c_row, std::ptrdiff_t c_next, bool add) {
  const hn::ScalableTag<T> d;
  using Vec = hn::Vec<decltype(d)>;
  const std::ptrdiff_t a_row = p.a_row, a_term = p.a_term, b_term = p.b_term, ahead = p.ahead;
  Vec sum[R][V];
  CONVOLUME_UNROLL
  for (int r = 0; r < R; ++r) {
    CONVOLUME_UNROLL
    for (int v = 0; v < V; ++v) sum[r][v] = hn::Zero(d);
  }
  for (index_t k = 0; k < terms; ++k, a += a_term, b += b_term) {
    Vec right[V];
    CONVOLUME_UNROLL
    for (int v = 0; v < V; ++v) right[v] = hn::LoadU(d, b + v * b_next);
    __builtin_prefetch(b + ahead);
    CONVOLUME_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vec left = hn::Set(d, a[r * a_row]);
      CONVOLUME_UNROLL
      for (int v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
    }
  }
  CONVOLUME_UNROLL
  for (int r = 0; r < R; ++r) {
    CONVOLUME_UNROLL
    for (int v = 0; v < V; ++v) {
      T* const to = c + r * c_row + v * c_next;
      hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sum[r][v]) : sum[r][v], d, to);
    }
  }
}

/// Computes R rows of V vectors from all terms, where the terms are so many that sums are added pairwise.
template <int R, int V, class T>
HWY_INLINE void SumPairwise(const WindowProduct<T>& p, const T* a, const T* b, std::ptrdiff_t b_next, T* c,
                            std::ptrdiff_t c_next) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  constexpr std::ptrdiff_t tile = R * V * static_cast<std::ptrdiff_t>(hn::MaxLanes(hn::ScalableTag<T>()));
  HWY_ALIGN T places[most_places * tile];
  T* to = places;
  for (index_t first = 0, done = 0; first < p.terms; first += terms_in_register) {
    const index_t end = std::min(first + terms_in_register, p.terms);
    SumTile<R, V>(p, a + first * p.a_term, b + first * p.b_term, b_next, end - first, to, V * lanes, lanes,
                  first % terms_in_turn != 0);
    if (end % terms_in_turn != 0 && end != p.terms) continue;
    // The sum of these terms is complete. Sums of as many terms are added, and at the end all that are left.
    ++done;
    for (index_t pairs = done; to != places && (pairs % 2 == 0 || end == p.terms); pairs /= 2, to -= tile) {
      for (std::ptrdiff_t i = 0; i < R * V * lanes; i += lanes) {
        hn::Store(hn::Add(hn::Load(d, to - tile + i), hn::Load(d, to + i)), d, to - tile + i);
      }
    }
    to += tile;
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      hn::StoreU(hn::Load(d, places + (r * V + v) * lanes), d, c + r * p.c_row + v * c_next);
    }
  }
}

/// Computes `pieces` times R rows of V vectors.
template <int R, int V, class T>
void SumRows(const WindowProduct<T>& p, index_t pieces, const T* a, const T* b, std::ptrdiff_t b_next, T* c,
             std::ptrdiff_t c_next) {
  for (; pieces > 0; --pieces, a += R * p.a_row, c += R * p.c_row) {
    if (p.terms > terms_in_turn) {
      SumPairwise<R, V>(p, a, b, b_next, c, c_next);
      continue;
    }
    for (index_t first = 0; first < p.terms; first += terms_in_register) {
      SumTile<R, V>(p, a + first * p.a_term, b + first * p.b_term, b_next, std::min(terms_in_register, p.terms - first),
                    c, p.c_row, c_next, p.add || first > 0);
    }
  }
}

template <class T>
using RowsKernel = void (*)(const WindowProduct<T>&, index_t, const T*, const T*, std::ptrdiff_t, T*, std::ptrdiff_t);

/// Returns SumRows<R, V> at index R - 1.
template <int V, class T, std::size_t... I>
constexpr std::array<RowsKernel<T>, sizeof...(I)> RowsKernels(std::index_sequence<I...>) {
  return {SumRows<static_cast<int>(I) + 1, V, T>...};
}

/// Computes the columns of a product, V vectors at a time. The rows are divided into pieces of nearly equal size.
template <int V, class T>
class ColumnProduct {
 public:
  explicit ColumnProduct(const WindowProduct<T>& product) : p_(product) {
    if (p_.rows == 0) return;
    const index_t pieces = (p_.rows + most_rows - 1) / most_rows;
    rows_ = p_.rows / pieces;
    longer_ = p_.rows % pieces;
    shorter_ = pieces - longer_;
  }
  void operator()(const T* b, std::ptrdiff_t b_next, T* c, std::ptrdiff_t c_next) const {
    static constexpr auto kernels = RowsKernels<V, T>(std::make_index_sequence<most_rows>());
    if (shorter_ > 0) kernels[static_cast<std::size_t>(rows_ - 1)](p_, shorter_, p_.a, b, b_next, c, c_next);
    if (longer_ == 0) return;
    const index_t done = shorter_ * rows_;
    kernels[static_cast<std::size_t>(rows_)](p_, longer_, p_.a + done * p_.a_row, b, b_next, c + done * p_.c_row,
                                             c_next);
  }

 private:
  const WindowProduct<T>& p_;
  index_t rows_ = 0, shorter_ = 0, longer_ = 0;  ///< pieces of rows_ and of rows_ + 1 rows
};

template <class T>
void Multiply(const WindowProduct<T>& product) {
  const WindowProduct<T> p = product;  // a copy, so that the compiler knows that no store changes it
  constexpr auto block = static_cast<std::ptrdiff_t>(64 / sizeof(T));
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(hn::ScalableTag<T>()));
  const ColumnProduct<2, T> pairs(p);
  index_t column = 0;
  if constexpr (hn::MaxLanes(hn::ScalableTag<T>()) < 64 / sizeof(T)) {
    for (; column < p.columns; ++column) {
      for (std::ptrdiff_t lane = 0; lane < block; lane += 2 * lanes) {
        pairs(p.b + column * p.b_column + lane, lanes, p.c + column * p.c_column + lane, lanes);
      }
    }
  } else {
    for (; column + 2 <= p.columns; column += 2) {
      pairs(p.b + column * p.b_column, p.b_column, p.c + column * p.c_column, p.c_column);
    }
    if (column < p.columns) {
      const ColumnProduct<1, T> single(p);
      single(p.b + column * p.b_column, 0, p.c + column * p.c_column, 0);
    }
  }
}

}  // namespace

WindowMultiply<float> MultiplyF32() { return Multiply<float>; }
WindowMultiply<double> MultiplyF64() { return Multiply<double>; }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

HWY_EXPORT(MultiplyF32);
HWY_EXPORT(MultiplyF64);

template <>
WindowMultiply<float> window_multiply() noexcept {
  return HWY_DYNAMIC_DISPATCH(MultiplyF32)();
}
template <>
WindowMultiply<double> window_multiply() noexcept {
  return HWY_DYNAMIC_DISPATCH(MultiplyF64)();
}

}  // namespace convolume::conv
#endif  // HWY_ONCE
