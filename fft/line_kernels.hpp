// The passes of which transforms of lines consist, compiled for every SIMD target: a table of functions that plans
// keep. A kernel works on as many independent lines at once as a vector has lanes. Terms:
//
// - A point is the values at one position of these lines, one line in each lane: a vector of real parts and a vector of
//   imaginary parts.
// - A transform pass is one radix of a line transform, applied to all points of a line. The passes of `fft::Plan` are
//   sets of independent items.
// - A lane run is neighbouring lanes whose values lie side by side in memory.
// - A half-complex line is the half spectrum of a real line of n points, stored as n real numbers.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "convolume/tensor.hpp"

namespace convolume::fft {

/// The largest length that is transformed in registers.
inline constexpr int largest_codelet = 16;

/// Memory that later work reads or writes, prefetched while a pass runs over several lines. While line i runs, `points`
/// places are prefetched from data + i * line on, `step` elements apart. Short pieces of a volume are not streams that
/// the hardware prefetcher recognises. Prefetching all pieces at once would fill the queue of cache misses and stall
/// it.
template <class T>
struct Prefetch {
  const T* data = nullptr;
  std::ptrdiff_t line = 0, step = 0;
  index_t points = 0;
  /// Returns the prefetch for line i and the lines after it.
  Prefetch from(index_t i) const { return {data + i * line, line, step, points}; }
};

/// One pass of a decimation in time. Before the pass, the n / before interleaved sub-sequences have been transformed
/// with length `before`; after it, the length is before * radix. Frequency k of sub-sequence q is stored at point k *
/// (n / before) + q, so that the first pass reads and the last pass writes the natural order (Stockham 1966).
///   in(k * radix * after + q + after * j), j < radix  ->  out((k + before * c) * after + q), c < radix
template <class T>
struct PassArguments {
  const T* in;
  T* out;
  std::ptrdiff_t in_step, out_step;  ///< elements between points
  std::ptrdiff_t in_im, out_im;      ///< elements from a real to its imaginary part; real data has none
  index_t before, after;             ///< before * radix * after = n
  const T* twiddles;                 ///< (re, im) of exp(-2 pi i j k / (before * radix)), [k >= 1][1 <= j < radix]
  index_t in_points, out_points;     ///< of n: the others count as zero (first pass) or are not written (last pass)
  index_t lines = 1;                 ///< how many lines the pass runs over
  std::ptrdiff_t in_line = 0, out_line = 0;
  /// Distance in elements from each loaded point to the point that is prefetched with it; 0 prefetches nothing.
  std::ptrdiff_t ahead = 0;
  /// The same for each stored point.
  std::ptrdiff_t out_ahead = 0;
  Prefetch<T> prefetch = {};
};

/// One butterfly of a prime radix p = 2 h + 1 by definition. `table` holds cos and sin of 2 pi j k / p, [k][j][2].
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

/// A permuted copy of points: out(to[i]) = weight[i] * in(from[i]). An index table that is null is the identity.
template <class T>
struct CopyArguments {
  const T* in;
  T* out;
  std::ptrdiff_t in_step, out_step, in_im, out_im;
  const std::int32_t *from, *to;
  const T* weights;  ///< (re, im) each, or null
  index_t points;
};

/// A product with constants: points(i) = swap(points(i) * constants[i]) for dense points. The swap exchanges real and
/// imaginary parts, so that the forward transform that follows computes a backward one. If `origin` is not null,
/// origin_out = origin + points(0), and origin is added to the product at 0 before the swap.
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

/// A transpose between rows in memory, one per lane, and points. Blocks of as many rows as there are lanes follow each
/// other. Row i of block j begins at base + offsets[j * lanes + i]; several rows may be the same. With two parts, the
/// transpose runs twice, for real and imaginary parts that are stored separately.
template <class T>
struct RowsArguments {
  T* base;
  const std::ptrdiff_t* offsets;
  std::ptrdiff_t row_step;  ///< elements between neighbours in a row
  T* points;
  std::ptrdiff_t point_step;
  index_t count;  ///< points in a row
  index_t blocks = 1;
  std::ptrdiff_t block_step = 0;  ///< elements between the points of successive blocks
  int parts = 1;
  std::ptrdiff_t row_part = 0, point_part = 0;
  /// Distance in elements from these rows to the rows that are loaded next, for prefetching; 0 prefetches nothing.
  std::ptrdiff_t ahead = 0;
};

/// A lane run. The values of lane `first` begin at `base`.
template <class T>
struct LaneRun {
  T* base;
  int first, count;
};

/// A copy between memory, in which lanes lie side by side in runs, and dense points.
template <class T>
struct RunsArguments {
  const LaneRun<T>* runs;
  int run_count;
  std::ptrdiff_t memory_step;  ///< elements between points in memory
  std::ptrdiff_t memory_im;    ///< from re to im: 1 (then lanes are 2 apart), or another distance (lanes 1 apart)
  T* points;
  index_t count;
};

/// How one vector of a row is composed. Lane i comes from lane i of a vector `low`, or from lane lanes[i] of a vector
/// `high` that lies `mirror` elements after the begin of the row, or is zero.
template <class T>
struct HalfcomplexVector {
  using Index = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  alignas(64) std::array<Index, 16> lanes{};
  alignas(64) std::array<T, 16> low{}, high{};  ///< all bits of a lane are set if the lane is taken
  bool has_low = false, has_high = false;
  std::ptrdiff_t mirror = 0;
};

/// A conversion between planes of real lines, after their transform along X and Y, and rows of n complex numbers. The
/// lanes are the real and imaginary parts (re 0, im 0, re 1, ...) of frequencies 0 to n/2. If the lanes are `packed`, n
/// is even and re n/2 takes the place of im 0. This loses nothing, because im 0 and im n/2 are zero.
template <class T>
struct HalfcomplexArguments {
  T* lanes;                             ///< [plane row][row][re, im][width], plane rows lane_step apart
  T* spectrum;                          ///< [plane row][row], row_step apart
  const HalfcomplexVector<T>* vectors;  ///< for each vector of a row (forward) or of the lanes (backward)
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
  std::array<Pass, largest_codelet + 1> real{}, hermitian{};  ///< r2c and c2r; hermitian passes undo real passes
  std::array<Pass, largest_codelet + 1> real_pruned{};        ///< r2c of in_points points; first passes only
  void (*generic)(const GenericArguments<T>&) = nullptr;
  void (*copy)(const CopyArguments<T>&) = nullptr;
  void (*convolve)(const ConvolveArguments<T>&) = nullptr;
  /// Computes the spectra of two real lines from the spectrum of one complex line whose real and imaginary parts they
  /// are. merge_pair computes the opposite.
  void (*split_pair)(const T* pair, index_t n, T* first, T* second) = nullptr;
  void (*merge_pair)(const T* first, const T* second, index_t n, T* pair) = nullptr;
  void (*rows_to_points)(const RowsArguments<T>&) = nullptr;
  void (*points_to_rows)(const RowsArguments<T>&) = nullptr;

  void (*runs_to_points)(const RunsArguments<T>&) = nullptr;
  void (*points_to_runs)(const RunsArguments<T>&) = nullptr;
  /// Null if a vector has fewer than 4 lanes.
  void (*halfcomplex_to_rows)(const HalfcomplexArguments<T>&) = nullptr;
  void (*rows_to_halfcomplex)(const HalfcomplexArguments<T>&) = nullptr;
  /// Copies with non-temporal (streaming) stores. `to` is aligned to 64 bytes. Another thread that reads `to` needs its
  /// own synchronisation.
  void (*stream)(const T* from, T* to, index_t count) = nullptr;

  /// Returns the kernels of the SIMD target in use. Width::half returns those of AVX2 if that target is AVX3, and is
  /// ignored otherwise.
  static LineKernels of(Width width);

 private:
  // Each of these is defined in its own translation unit, because they take long to compile.
  void add_complex_passes(std::size_t target);
  void add_real_passes(std::size_t target);
  void add_other_kernels(std::size_t target);
};

}  // namespace convolume::fft
