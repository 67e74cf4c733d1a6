// Rows of voxels of a direct product: pieces of rows, and how their sums are stored. This file is compiled once per
// SIMD target.
#if defined(CONVOLUME_CONV_DIRECT_ROWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_CONV_DIRECT_ROWS_INL_HPP
#undef CONVOLUME_CONV_DIRECT_ROWS_INL_HPP
#else
#define CONVOLUME_CONV_DIRECT_ROWS_INL_HPP
#endif

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "hwy/highway.h"

#include "conv/direct/direct_product.hpp"
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

/// Prefetches what a step reads in the next row: processors do not recognise rows with gaps of cache lines. Each voxel
/// is prefetched by one tap only, because prefetches of rows in the L2 take the places of loads.
template <int R, class T>
HWY_INLINE void PrefetchRow(const VoxelProduct<T>& p, const DirectStep& step, const T* source) {
  const T* a = source + step.source + p.source_strides.row;
  for (int r = 0; r < R; ++r, a += p.source_strides.voxel) __builtin_prefetch(a);
}

/// Prefetches what the next product reads in the place of a step's weights, which lie `next_weights` apart.
template <int C, class T>
HWY_INLINE void PrefetchWeights(const VoxelProduct<T>& p, const DirectStep& step, const T* weights,
                                std::ptrdiff_t next_weights) {
  const T* b = weights + step.weights + p.weights_next;
  for (int term = 0; term < step.terms; ++term, b += next_weights) {
    for (int c = 0; c < C; ++c) {
      __builtin_prefetch(b + c * SecondVector<T>(p.weights_column), 0, simd::HWY_NAMESPACE::into_l2);
    }
  }
}

/// A piece of a row. If rows are short, two rows are summed together, and this also gives the steps to the second row,
/// in elements.
template <class T>
struct RowPiece {
  const T *source, *weights;
  T* target;
  std::ptrdiff_t next_source, next_target;
  RowEnds ends;
  bool prefetches;  ///< the weights of the next product are prefetched meanwhile
};

/// A product and a piece whose members are loaded anew by each step. Otherwise the compiler would keep some of them in
/// vector registers, because all general registers are taken. A move back waits for the multiply-adds before it, if
/// they use the same port. On Emerald Rapids a step took 14 cycles more.
template <class T>
class StepReader {
 public:
  HWY_INLINE StepReader(const VoxelProduct<T>& p, const RowPiece<T>& piece) : product_(&p), piece_(&piece) {}
  HWY_INLINE void begin_step() { __asm__ volatile("" : "+m"(product_), "+m"(piece_) : : "memory"); }
  HWY_INLINE const VoxelProduct<T>& product() const { return *product_; }
  HWY_INLINE const RowPiece<T>& piece() const { return *piece_; }

 private:
  const VoxelProduct<T>* product_;
  const RowPiece<T>* piece_;
};

/// Calls visit(sum, vector, place in the target) for all sums of a piece.
template <int R, int Rows, int C, class T, class Sums, class Visit>
HWY_INLINE void VisitSums(const VoxelProduct<T>& p, const RowPiece<T>& piece, Sums& sums, const Visit& visit) {
  const std::ptrdiff_t second = SecondVector<T>(p.target_column), voxel = p.target_strides.voxel;
  T* to = piece.target;
  CONVOLUME_UNROLL
  for (std::size_t i = 0; i < Rows * R; ++i, to += voxel) {
    if (Rows == 2 && i == R) to = piece.target + piece.next_target;
    __asm__("" : "+r"(to));  // otherwise the compiler would compute all places first, for which registers are missing
    CONVOLUME_UNROLL
    for (std::size_t c = 0; c < C; ++c) visit(sums[i * C + c], c, to + static_cast<std::ptrdiff_t>(c) * second);
  }
}

/// Adds the target or the bias to the sums of a piece, sets the lanes that belong to no channel to zero, and stores the
/// sums. `lanes` belong to a channel. Each of the four parts is a piece of code for all sums: code for each combination
/// would be most of the kernels' code.
template <int R, int Rows, int C, class T, class Sums>
HWY_INLINE void FinishSums(const VoxelProduct<T>& p, const RowPiece<T>& piece, const T* bias, index_t lanes,
                           Sums& sums) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  if (p.add) {
    VisitSums<R, Rows, C>(p, piece, sums, [&](V& sum, std::size_t, const T* to) CONVOLUME_ALWAYS_INLINE {
      sum = hn::Add(hn::LoadU(d, to), sum);
    });
  }
  // An addition takes the place of a multiply-add, so whole sums without a bias are stored as they are.
  const bool biased = bias != nullptr && !p.add;
  if (biased || lanes < C * vector_lanes<T>) {
    std::array<V, C> start;
    std::array<hn::Mask<decltype(d)>, C> used;
    for (std::size_t c = 0; c < C; ++c) {
      const index_t left = lanes - static_cast<index_t>(c) * vector_lanes<T>;
      used[c] = hn::FirstN(d, static_cast<std::size_t>(std::clamp<index_t>(left, 0, vector_lanes<T>)));
      // The addition of -0 changes no bit of a sum. With +0, a sum of -0 would change.
      start[c] = biased ? hn::LoadU(d, bias + c * vector_lanes<T>) : hn::Set(d, T(-0.0));
    }
    CONVOLUME_UNROLL
    for (std::size_t i = 0; i < Rows * R * C; ++i) {
      sums[i] = hn::IfThenElseZero(used[i % C], hn::Add(start[i % C], sums[i]));
    }
  }
  // Non-temporal stores of narrower vectors would leave cache lines half written.
  if (p.non_temporal && vector_lanes<T> == block<T>) {
    VisitSums<R, Rows, C>(p, piece, sums,
                          [&](V sum, std::size_t, T* to) CONVOLUME_ALWAYS_INLINE { hn::Stream(sum, d, to); });
  } else {
    VisitSums<R, Rows, C>(p, piece, sums,
                          [&](V sum, std::size_t, T* to) CONVOLUME_ALWAYS_INLINE { hn::StoreU(sum, d, to); });
  }
}

/// Sums the steps of a piece by add_step(reader, step, sums), and stores the sums.
template <int R, int Rows, int C, class T, class AddStep>
HWY_INLINE void SumSteps(const VoxelProduct<T>& p, const RowPiece<T>& piece, const T* bias, index_t lanes,
                         const AddStep& add_step) {
  const hn::ScalableTag<T> d;
  std::array<hn::Vec<decltype(d)>, Rows * R * C> sums;
  CONVOLUME_UNROLL
  for (auto& sum : sums) sum = hn::Zero(d);
  StepReader<T> reader(p, piece);
  const DirectStep* const end = p.steps + p.step_count;
  for (const DirectStep* step = p.steps; step != end; ++step) {
    reader.begin_step();
    add_step(reader, *step, sums);
  }
  FinishSums<R, Rows, C>(p, piece, bias, lanes, sums);
}

template <class T>
using PieceKernel = void (*)(const VoxelProduct<T>&, const RowPiece<T>&, const T*, index_t);

/// The lengths of pieces that have kernels. Long pieces are most of the code, and gain little over two pieces of half
/// their length if these still have sums enough to fill the multiply-adds' latency.
enum class Lengths {
  all,
  halves,  ///< up to half of the largest length, and the largest one
};
/// Whether there are kernels of all kinds and lengths. Doubles do with fewer kernels, which compute the same sums.
template <class T>
inline constexpr bool all_kernels = std::is_same_v<T, float>;
template <class T>
inline constexpr Lengths lengths_of = all_kernels<T> ? Lengths::all : Lengths::halves;

/// Returns the largest length up to which all lengths have kernels.
constexpr int longest_of_all(Lengths lengths, int most) { return lengths == Lengths::all ? most : (most + 1) / 2; }

/// Returns make(length) for each length that has a kernel, and null for the others. `make` takes the length as a
/// constant.
template <int Most, Lengths L, class T, class Make, std::size_t... R>
constexpr std::array<PieceKernel<T>, Most> PieceKernels(const Make& make, std::index_sequence<R...>) {
  const auto kernel = [&](auto length) -> PieceKernel<T> {
    if constexpr (length <= longest_of_all(L, Most) || length == Most) {
      return make(length);
    } else {
      return nullptr;
    }
  };
  return {kernel(std::integral_constant<int, static_cast<int>(R) + 1>())...};
}
template <int Most, Lengths L, class T, class Make>
constexpr std::array<PieceKernel<T>, Most> PieceKernels(const Make& make) {
  return PieceKernels<Most, L, T>(make, std::make_index_sequence<Most>());
}

/// Returns the smallest number of nearly equal pieces of a row whose lengths have kernels.
template <class T, std::size_t Most>
index_t PiecesOf(const std::array<PieceKernel<T>, Most>& kernels, index_t voxels) {
  constexpr auto most = static_cast<index_t>(Most);
  const auto has_kernel = [&](index_t length) { return kernels[static_cast<std::size_t>(length - 1)] != nullptr; };
  index_t pieces = (voxels + most - 1) / most;
  while (!has_kernel(voxels / pieces) || !has_kernel((voxels + pieces - 1) / pieces)) ++pieces;
  return pieces;
}

/// The weights, target and bias of a product from vector number `v` of its lanes on, and the lanes that are left.
template <class T>
struct LanesFrom {
  HWY_INLINE LanesFrom(const VoxelProduct<T>& p, index_t v)
      : weights(p.weights + VectorOffset<T>(v, p.weights_column)),
        target(p.target + VectorOffset<T>(v, p.target_column)),
        bias(p.bias == nullptr ? nullptr : p.bias + v * vector_lanes<T>),
        count(p.lanes - v * vector_lanes<T>) {}
  const T* weights;
  T* target;
  const T* bias;
  index_t count;
};

/// Returns row number i, counted through all planes.
template <class T>
HWY_INLINE RowPiece<T> RowOf(const VoxelProduct<T>& p, const LanesFrom<T>& lanes, index_t i) {
  const index_t z = i / p.count.y, y = i % p.count.y;
  return {p.source + z * p.source_strides.plane + y * p.source_strides.row,
          lanes.weights,
          lanes.target + z * p.target_strides.plane + y * p.target_strides.row,
          0,
          0,
          {},
          p.weights_next != 0 && i == 0};
}

/// Computes the rows from number `row` on. A row is divided into nearly equal pieces, so that no piece leaves many
/// registers idle. `kernels` has the kernels by the length of a piece.
template <class T, std::size_t Most>
void SumPieces(const std::array<PieceKernel<T>, Most>& kernels, index_t row, const VoxelProduct<T>& p,
               const LanesFrom<T>& lanes) {
  const index_t pieces = PiecesOf(kernels, p.count.x);
  const index_t least = p.count.x / pieces, longer = p.count.x % pieces;
  const index_t rows = p.count.z * p.count.y;
  if (row >= rows) return;
  // Members are written one by one. A copy of a whole piece would wait until the stores of the piece before it, whose
  // sums are not complete, have left the store buffer.
  RowPiece<T> piece = RowOf(p, lanes, row);
  const T* source = piece.source;
  T* to = piece.target;
  for (index_t y = row % p.count.y; row < rows; ++row) {
    piece.source = source;
    piece.target = to;
    for (index_t i = 0; i < pieces; ++i) {
      const index_t voxels = least + (i < longer ? 1 : 0);
      piece.ends.first = i == 0;
      piece.ends.last = i + 1 == pieces;
      kernels[static_cast<std::size_t>(voxels - 1)](p, piece, lanes.bias, lanes.count);
      piece.source += voxels * p.source_strides.voxel;
      piece.target += voxels * p.target_strides.voxel;
      piece.prefetches = false;
    }
    // A division per row would take longer than a short piece.
    source += p.source_strides.row;
    to += p.target_strides.row;
    if (++y == p.count.y) {
      y = 0;
      source += p.source_strides.plane - p.count.y * p.source_strides.row;
      to += p.target_strides.plane - p.count.y * p.target_strides.row;
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
