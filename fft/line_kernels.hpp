// The passes that transforms of lines consist of, compiled for every SIMD target: a table of functions that plans keep.
// A kernel works on as many independent lines at once as a vector has lanes; a *point* of them is a vector.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "convolume/tensor.hpp"

namespace convolume::fft {

/// Lengths of transforms that are held in registers: 1 to this.
inline constexpr int largest_codelet = 16;

/// Memory that later work reads or writes, asked for while a pass runs over several lines: with line i, `points` places
/// from data + i * line, `step` elements apart. Short pieces of a volume are no streams that hardware would recognise,
/// and asked for all at once they would fill the queue of misses and stall it.
template <class T>
struct Prefetch {
  const T* data = nullptr;
  std::ptrdiff_t line = 0, step = 0;
  index_t points = 0;
  /// What goes with line i, and those behind it.
  Prefetch from(index_t i) const { return {data + i * line, line, step, points}; }
};

/// One pass of a decimation in time. Before it there are transforms of length `before` of n / before interleaved
/// sub-sequences, afterwards of length before * radix; frequency k of sub-sequence q stands at point k * (n / before) +
/// q, so that the first pass reads and the last one writes the natural order (Stockham 1966).
///   in(k * radix * after + q + after * j), j < radix  ->  out((k + before * c) * after + q), c < radix
template <class T>
struct PassArguments {
  const T* in;
  T* out;
  std::ptrdiff_t in_step, out_step;  ///< elements between points
  std::ptrdiff_t in_im, out_im;      ///< elements from a real to its imaginary part; real data has none
  index_t before, after;             ///< before * radix * after = n
  const T* twiddles;                 ///< (re, im) of exp(-2 pi i j k / (before * radix)), [k >= 1][1 <= j < radix]
  index_t in_points, out_points;     ///< of n: the others count as zero, or are not wanted (first, last pass only)
  index_t lines = 1;                 ///< repeats all of it so often
  std::ptrdiff_t in_line = 0, out_line = 0;
  /// With every point that is loaded, the one so many elements further is asked for.
  std::ptrdiff_t ahead = 0;
  /// Likewise with every point that is stored.
  std::ptrdiff_t out_ahead = 0;
  Prefetch<T> prefetch = {};
};

/// One butterfly of a prime radix p = 2 h + 1 by definition; `table` holds cos and sin of 2 pi j k / p, [k][j][2].
template <class T>
struct GenericArguments {
  const T* in;
  T* out;
  std::ptrdiff_t in_step, out_step, in_im, out_im;
  const T* twiddles;  ///< [1 <= j < p] or null
  const T* table;
  index_t p;
  T* scratch;  ///< p points
};

/// A permuted copy of points: out(to[i]) = weight[i] * in(from[i]); without an index table, the identity.
template <class T>
struct CopyArguments {
  const T* in;
  T* out;
  std::ptrdiff_t in_step, out_step, in_im, out_im;
  const std::int32_t *from, *to;
  const T* weights;  ///< (re, im) each, or null
  index_t points;
};

/// points(i) = swap(points(i) * constants[i]) for dense points, where swap exchanges real and imaginary part, so that
/// the forward transform that follows is a backward one. Where `origin` is given, origin_out = origin + points(0), and
/// origin is added to the product at 0 before the swap.
template <class T>
struct ConvolveArguments {
  T* points;
  const T* constants;
  index_t count;
  const T* origin;
  std::ptrdiff_t origin_im;
  T* origin_out;
  std::ptrdiff_t origin_out_im;
};

/// Between rows in memory, one per lane, and points; blocks of as many rows as there are lanes follow each other. Row i
/// of block j begins at base + offsets[j * lanes + i]; several may be the same one. With two parts all of it is done
/// twice, for real and imaginary parts that lie apart.
template <class T>
struct RowsArguments {
  T* base;
  const std::ptrdiff_t* offsets;
  std::ptrdiff_t row_step;  ///< elements between neighbours on a row
  T* points;
  std::ptrdiff_t point_step;
  index_t count;  ///< points of a row
  index_t blocks = 1;
  std::ptrdiff_t block_step = 0;  ///< elements between the points of blocks
  int parts = 1;
  std::ptrdiff_t row_part = 0, point_part = 0;
  /// Where rows that are loaded next lie, in elements from these; 0 asks for nothing.
  std::ptrdiff_t ahead = 0;
};

/// Neighbouring lanes whose values lie side by side in memory; the values of lane `first` stand at `base`.
template <class T>
struct LaneRun {
  T* base;
  int first, count;
};

/// Between memory where lanes lie side by side in runs, and dense points.
template <class T>
struct RunsArguments {
  const LaneRun<T>* runs;
  int run_count;
  std::ptrdiff_t memory_step;  ///< elements between points in memory
  std::ptrdiff_t memory_im;    ///< from real to imaginary part: 1 (then lanes are 2 apart), or anything (lanes 1 apart)
  T* points;
  index_t count;
};

/// How one vector of a row is put together: lane i from lane i of a vector `low`, or from lane lanes[i] of a vector
/// `high` that stands `mirror` elements behind the row's begin, or neither.
template <class T>
struct HalfcomplexVector {
  using Index = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  alignas(64) std::array<Index, 16> lanes{};
  alignas(64) std::array<T, 16> low{}, high{};  ///< all bits set where it is taken
  bool has_low = false, has_high = false;
  std::ptrdiff_t mirror = 0;
};

/// Between planes of real lines, whose lanes are the real and imaginary parts (re 0, im 0, re 1, ...) of frequencies 0
/// to n/2, after their transform along X and Y, and rows of n complex numbers. Where lanes are `packed`, re n/2 (n is
/// even) takes the place of im 0, which is zero as im n/2 is.
template <class T>
struct HalfcomplexArguments {
  T* lanes;                             ///< [plane row][row][re, im][width], plane rows lane_step apart
  T* spectrum;                          ///< [plane row][row], row_step apart
  const HalfcomplexVector<T>* vectors;  ///< for each vector of a row, or, backward, of lanes
  index_t plane_rows, rows, n, width, lane_vectors, row_vectors;
  std::ptrdiff_t lane_step, row_step;
  bool packed;
};

enum class Width { whole, half };

template <class T>
struct LineKernels {
  using Pass = void (*)(const PassArguments<T>&);
  index_t lanes = 0;
  const char* target = "";
  std::array<Pass, largest_codelet + 1> complex{}, complex_pruned{};
  std::array<Pass, largest_codelet + 1> real{}, hermitian{};  ///< r2c and c2r; the latter undoes the former, backwards
  std::array<Pass, largest_codelet + 1> real_pruned{};        ///< r2c of in_points; first passes only
  void (*generic)(const GenericArguments<T>&) = nullptr;
  void (*copy)(const CopyArguments<T>&) = nullptr;
  void (*convolve)(const ConvolveArguments<T>&) = nullptr;
  /// Spectra of two real lines from that of one complex line which carries them as real and imaginary part, and back.
  void (*split_pair)(const T* pair, index_t n, T* first, T* second) = nullptr;
  void (*merge_pair)(const T* first, const T* second, index_t n, T* pair) = nullptr;
  void (*rows_to_points)(const RowsArguments<T>&) = nullptr;
  void (*points_to_rows)(const RowsArguments<T>&) = nullptr;

  void (*runs_to_points)(const RunsArguments<T>&) = nullptr;
  void (*points_to_runs)(const RunsArguments<T>&) = nullptr;
  /// Absent where a vector has fewer than 4 lanes.
  void (*halfcomplex_to_rows)(const HalfcomplexArguments<T>&) = nullptr;
  void (*rows_to_halfcomplex)(const HalfcomplexArguments<T>&) = nullptr;
  /// A copy past the caches; `to` is aligned to 64 bytes. Later work of other threads needs its own synchronisation.
  void (*stream)(const T* from, T* to, index_t count) = nullptr;

  /// Those of the SIMD target in use, or, of half vectors, those of AVX2 where that is AVX3, and the same otherwise.
  static LineKernels of(Width width);

 private:
  // Each in a translation unit of its own, since they take long to compile.
  void add_complex_passes(std::size_t target);
  void add_real_passes(std::size_t target);
  void add_other_kernels(std::size_t target);
};

}  // namespace convolume::fft
