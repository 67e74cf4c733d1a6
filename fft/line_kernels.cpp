// Kernels for transforms of lines, beside the passes in registers: prime radices, permutations, pairs of real lines,
// and conversions between rows in memory and vectors of lanes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fft/line_kernels.cpp"
#include "fft/line_kernels.hpp"

#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "convolume/cpu.hpp"
#include "core/simd/rows-inl.hpp"
#include "fft/codelets-inl.hpp"
#include "fft/halfcomplex-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::fft {
namespace HWY_NAMESPACE {

using simd::HWY_NAMESPACE::LoadRows;
using simd::HWY_NAMESPACE::StoreRows;
namespace {

/// Number of outputs of a prime radix that are summed at the same time: as many as the registers hold.
constexpr int prime_block = HWY_TARGET <= HWY_AVX3 ? 6 : 2;

/// Longest sum of products that is accumulated in sequence. Rounding errors of a longer sum would exceed the promised
/// bound.
constexpr index_t prime_terms = 32;

/// Computes outputs k+1 .. k+K of a prime radix and their mirror images.
template <int K, class T>
HWY_INLINE void GenericBlock(const GenericArguments<T>& a, index_t k, index_t h,
                             Complex<hn::Vec<hn::ScalableTag<T>>> x0) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  std::array<Complex<V>, K> even, odd;
  Unroll<K>([&](auto i) CONVOLUME_ALWAYS_INLINE {
    even[i] = x0;
    odd[i] = {hn::Zero(d), hn::Zero(d)};
  });
  const T* table = a.table + 2 * k * h;
  const T* terms = a.scratch;
  const auto add_terms = [&](index_t count) CONVOLUME_ALWAYS_INLINE {
    for (index_t j = 0; j < count; ++j, table += 2, terms += 4 * lanes) {
      const V sum_re = hn::LoadU(d, terms), sum_im = hn::LoadU(d, terms + lanes);
      const V difference_re = hn::LoadU(d, terms + 2 * lanes), difference_im = hn::LoadU(d, terms + 3 * lanes);
      Unroll<K>([&](auto i) CONVOLUME_ALWAYS_INLINE {
        const V c = hn::Set(d, table[2 * i * h]), s = hn::Set(d, table[2 * i * h + 1]);
        even[i] = {hn::MulAdd(sum_re, c, even[i].re), hn::MulAdd(sum_im, c, even[i].im)};
        odd[i] = {hn::MulAdd(difference_re, s, odd[i].re), hn::MulAdd(difference_im, s, odd[i].im)};
      });
    }
  };
  add_terms(h <= prime_terms ? h : h / 2);
  if (h > prime_terms) {
    const std::array<Complex<V>, K> first_even = even, first_odd = odd;
    Unroll<K>([&](auto i) CONVOLUME_ALWAYS_INLINE { even[i] = odd[i] = {hn::Zero(d), hn::Zero(d)}; });
    add_terms(h - h / 2);
    Unroll<K>([&](auto i) CONVOLUME_ALWAYS_INLINE {
      even[i] = even[i] + first_even[i];
      odd[i] = odd[i] + first_odd[i];
    });
  }
  Unroll<K>([&](auto i) CONVOLUME_ALWAYS_INLINE {
    const Complex<V> low = SubtractI(even[i], odd[i]), high = AddI(even[i], odd[i]);
    T* point = a.out + (k + 1 + i) * a.out_step;
    hn::StoreU(low.re, d, point);
    hn::StoreU(low.im, d, point + a.out_im);
    point = a.out + (a.p - 1 - k - i) * a.out_step;
    hn::StoreU(high.re, d, point);
    hn::StoreU(high.im, d, point + a.out_im);
  });
}

template <int K, class T>
HWY_INLINE void GenericBlocks(const GenericArguments<T>& a, index_t k, index_t h,
                              Complex<hn::Vec<hn::ScalableTag<T>>> x0) {
  for (; k + K <= h; k += K) GenericBlock<K>(a, k, h, x0);
  if constexpr (K > 1) {
    if (k < h) GenericBlocks<K / 2>(a, k, h, x0);
  }
}

template <class T>
HWY_INLINE Complex<hn::Vec<hn::ScalableTag<T>>> LoadTwiddled(const GenericArguments<T>& a, index_t j) {
  const hn::ScalableTag<T> d;
  const T* point = a.in + j * a.in_step;
  const Complex<hn::Vec<decltype(d)>> x{hn::LoadU(d, point), hn::LoadU(d, point + a.in_im)};
  if (a.twiddles == nullptr) return x;
  return Multiply(x, hn::Set(d, a.twiddles[2 * (j - 1)]), hn::Set(d, a.twiddles[2 * (j - 1) + 1]));
}

template <class T>
void Generic(const GenericArguments<T>& arguments) {
  const GenericArguments<T> a = arguments;
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  const index_t h = (a.p - 1) / 2;
  const Complex<V> x0{hn::LoadU(d, a.in), hn::LoadU(d, a.in + a.in_im)};
  Complex<V> zero = x0;
  T* terms = a.scratch;
  for (index_t j = 1; j <= h; ++j, terms += 4 * lanes) {
    const Complex<V> low = LoadTwiddled(a, j), high = LoadTwiddled(a, a.p - j);
    const Complex<V> sum = low + high, difference = low - high;
    zero = zero + sum;
    hn::StoreU(sum.re, d, terms);
    hn::StoreU(sum.im, d, terms + lanes);
    hn::StoreU(difference.re, d, terms + 2 * lanes);
    hn::StoreU(difference.im, d, terms + 3 * lanes);
  }
  hn::StoreU(zero.re, d, a.out);
  hn::StoreU(zero.im, d, a.out + a.out_im);
  GenericBlocks<prime_block>(a, 0, h, x0);
}

template <class T>
void Copy(const CopyArguments<T>& arguments) {
  const CopyArguments<T> a = arguments;
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  for (index_t i = 0; i < a.points; ++i) {
    const T* in = a.in + (a.from != nullptr ? a.from[i] : i) * a.in_step;
    T* out = a.out + (a.to != nullptr ? a.to[i] : i) * a.out_step;
    Complex<V> x{hn::LoadU(d, in), hn::LoadU(d, in + a.in_im)};
    if (a.weights != nullptr) x = Multiply(x, hn::Set(d, a.weights[2 * i]), hn::Set(d, a.weights[2 * i + 1]));
    hn::StoreU(x.re, d, out);
    hn::StoreU(x.im, d, out + a.out_im);
  }
}

template <class T>
void Convolve(const ConvolveArguments<T>& arguments) {
  const ConvolveArguments<T> a = arguments;
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  Complex<V> at_zero{hn::Zero(d), hn::Zero(d)};
  if (a.origin != nullptr) {
    at_zero = {hn::LoadU(d, a.origin), hn::LoadU(d, a.origin + a.origin_im)};
    const Complex<V> sum = at_zero + Complex<V>{hn::LoadU(d, a.points), hn::LoadU(d, a.points + lanes)};
    hn::StoreU(sum.re, d, a.origin_out);
    hn::StoreU(sum.im, d, a.origin_out + a.origin_out_im);
  }
  T* point = a.points;
  for (index_t i = 0; i < a.count; ++i, point += 2 * lanes) {
    const Complex<V> x{hn::LoadU(d, point), hn::LoadU(d, point + lanes)};
    Complex<V> y = Multiply(x, hn::Set(d, a.constants[2 * i]), hn::Set(d, a.constants[2 * i + 1]));
    if (i == 0) y = y + at_zero;
    hn::StoreU(y.im, d, point);
    hn::StoreU(y.re, d, point + lanes);
  }
}

template <class T>
void SplitPair(const T* pair, index_t n, T* first, T* second) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  const V half = hn::Set(d, T{0.5});
  for (index_t k = 0; k <= n / 2; ++k, first += 2 * lanes, second += 2 * lanes) {
    const T* low = pair + 2 * lanes * k;
    const T* high = pair + 2 * lanes * (k == 0 ? 0 : n - k);
    const V low_re = hn::Mul(half, hn::LoadU(d, low)), low_im = hn::Mul(half, hn::LoadU(d, low + lanes));
    const V high_re = hn::Mul(half, hn::LoadU(d, high)), high_im = hn::Mul(half, hn::LoadU(d, high + lanes));
    hn::StoreU(hn::Add(low_re, high_re), d, first);
    hn::StoreU(hn::Sub(low_im, high_im), d, first + lanes);
    hn::StoreU(hn::Add(low_im, high_im), d, second);
    hn::StoreU(hn::Sub(high_re, low_re), d, second + lanes);
  }
}

template <class T>
void MergePair(const T* first, const T* second, index_t n, T* pair) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  for (index_t k = 0; k <= n / 2; ++k, first += 2 * lanes, second += 2 * lanes) {
    // Frequencies that are their own mirror image are real. The imaginary part in memory is ignored.
    const bool own_image = k == 0 || 2 * k == n;
    const V a_re = hn::LoadU(d, first), b_re = hn::LoadU(d, second);
    const V a_im = own_image ? hn::Zero(d) : hn::LoadU(d, first + lanes);
    const V b_im = own_image ? hn::Zero(d) : hn::LoadU(d, second + lanes);
    T* low = pair + 2 * lanes * k;
    T* high = pair + 2 * lanes * (k == 0 ? 0 : n - k);
    hn::StoreU(hn::Add(a_re, b_im), d, high);
    hn::StoreU(hn::Sub(b_re, a_im), d, high + lanes);
    hn::StoreU(hn::Sub(a_re, b_im), d, low);
    hn::StoreU(hn::Add(a_im, b_re), d, low + lanes);
  }
}

template <class T, class Body>
HWY_INLINE void ForEachBlock(const RowsArguments<T>& a, const Body& body) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t lanes = hn::MaxLanes(hn::ScalableTag<T>());
  std::array<T*, lanes> rows;
  for (index_t block = 0; block < a.blocks; ++block) {
    const std::ptrdiff_t* offsets = a.offsets + block * static_cast<index_t>(lanes);
    for (int part = 0; part < a.parts; ++part) {
      T* base = a.base + part * a.row_part;
      for (std::size_t lane = 0; lane < lanes; ++lane) rows[lane] = base + offsets[lane];
      body(d, rows.data(), a.points + block * a.block_step + part * a.point_part);
    }
  }
}

template <class T>
void RowsToPoints(const RowsArguments<T>& arguments) {
  const RowsArguments<T> a = arguments;
  ForEachBlock(a, [&](auto d, T* const* rows, T* points) CONVOLUME_ALWAYS_INLINE {
    LoadRows(d, rows, a.row_step, points, a.point_step, a.count, a.ahead);
  });
}
template <class T>
void PointsToRows(const RowsArguments<T>& arguments) {
  const RowsArguments<T> a = arguments;
  ForEachBlock(a, [&](auto d, T* const* rows, T* points) CONVOLUME_ALWAYS_INLINE {
    StoreRows(d, static_cast<const T*>(points), a.point_step, rows, a.row_step, a.count);
  });
}

template <class T>
void Stream(const T* from, T* to, index_t count) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<index_t>(hn::Lanes(d));
  index_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  for (; i < count; ++i) to[i] = from[i];
  hwy::FlushStream();
}

/// Returns the mask of the lanes of a run. The other lanes may lie in memory that does not belong to this run.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Mask<D> RunMask(D d, const LaneRun<T>& run) {
  return hn::AndNot(hn::FirstN(d, static_cast<std::size_t>(run.first)),
                    hn::FirstN(d, static_cast<std::size_t>(run.first + run.count)));
}

#if HWY_TARGET <= HWY_AVX2
/// Gathers the lanes of R neighbouring runs, from run r on, in registers, and stores them to the points.
template <int R, class T>
HWY_INLINE void GatherRuns(const RunsArguments<T>& a, int r) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  std::array<hn::Mask<decltype(d)>, R> masks;
  std::array<const T*, R> from;
  Unroll<R>([&](auto i) CONVOLUME_ALWAYS_INLINE {
    masks[i] = RunMask(d, a.runs[r + i]);
    from[i] = a.runs[r + i].base - a.runs[r + i].first;
  });
  const auto all = RunMask(
      d, LaneRun<T>{nullptr, a.runs[r].first, a.runs[r + R - 1].first + a.runs[r + R - 1].count - a.runs[r].first});
  T* point = a.points;
  for (index_t i = 0; i < a.count; ++i, point += 2 * lanes) {
    auto re = hn::MaskedLoad(masks[0], d, from[0]), im = hn::MaskedLoad(masks[0], d, from[0] + a.memory_im);
    Unroll<R>([&](auto k) CONVOLUME_ALWAYS_INLINE {
      if constexpr (k > 0) {
        re = hn::Or(re, hn::MaskedLoad(masks[k], d, from[k]));
        im = hn::Or(im, hn::MaskedLoad(masks[k], d, from[k] + a.memory_im));
      }
      from[k] += a.memory_step;
    });
    if (r == 0) {  // lanes of later runs are overwritten later
      hn::StoreU(re, d, point);
      hn::StoreU(im, d, point + lanes);
    } else {
      hn::BlendedStore(re, all, d, point);
      hn::BlendedStore(im, all, d, point + lanes);
    }
  }
}
#endif

/// Copies whole vectors if the run is a whole vector, and one lane of complex numbers at a time otherwise.
template <class T>
void RunsToPoints(const RunsArguments<T>& arguments) {
  const RunsArguments<T> a = arguments;
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int>(hn::Lanes(d));
  const bool whole = a.run_count == 1 && a.runs[0].count == lanes;
  const bool interleaved = a.memory_im == 1;
#if HWY_TARGET <= HWY_AVX2
  if (!interleaved && !whole) {
    int r = 0;
    for (; a.run_count - r >= 4; r += 4) GatherRuns<4>(a, r);
    if (a.run_count - r == 3) GatherRuns<3>(a, r);
    if (a.run_count - r == 2) GatherRuns<2>(a, r);
    if (a.run_count - r == 1) GatherRuns<1>(a, r);
    return;
  }
#endif
  for (index_t i = 0; i < a.count; ++i) {
    T* point = a.points + 2 * i * lanes;
    const T* from = a.runs[0].base + i * a.memory_step;
    if (whole && !interleaved) {
      hn::StoreU(hn::LoadU(d, from), d, point);
      hn::StoreU(hn::LoadU(d, from + a.memory_im), d, point + lanes);
      continue;
    }
#if HWY_TARGET != HWY_SCALAR
    if (whole) {
      const auto a0 = hn::LoadU(d, from), a1 = hn::LoadU(d, from + lanes);
      hn::StoreU(hn::ConcatEven(d, a1, a0), d, point);
      hn::StoreU(hn::ConcatOdd(d, a1, a0), d, point + lanes);
      continue;
    }
#endif
    for (int r = 0; r < a.run_count; ++r) {
      const LaneRun<T>& run = a.runs[r];
      from = run.base + i * a.memory_step;
      for (int lane = 0; lane < run.count; ++lane) {
        point[run.first + lane] = from[interleaved ? 2 * lane : lane];
        point[run.first + lane + lanes] = from[interleaved ? 2 * lane + 1 : lane + a.memory_im];
      }
    }
  }
}

template <class T>
void PointsToRuns(const RunsArguments<T>& arguments) {
  const RunsArguments<T> a = arguments;
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int>(hn::Lanes(d));
  [[maybe_unused]] const bool whole = a.run_count == 1 && a.runs[0].count == lanes;
  const bool interleaved = a.memory_im == 1;
#if HWY_TARGET <= HWY_AVX2  // On targets below AVX2, a masked store is a load, a blend and a store. Another thread
                            // could see that store.
  if (!interleaved) {
    for (int r = 0; r < a.run_count; ++r) {
      const LaneRun<T> run = a.runs[r];
      const auto mask = RunMask(d, run);
      const T* point = a.points;
      T* to = run.base - run.first;
      for (index_t i = 0; i < a.count; ++i, point += 2 * lanes, to += a.memory_step) {
        hn::BlendedStore(hn::LoadU(d, point), mask, d, to);
        hn::BlendedStore(hn::LoadU(d, point + lanes), mask, d, to + a.memory_im);
      }
    }
    return;
  }
#endif
  for (index_t i = 0; i < a.count; ++i) {
    const T* point = a.points + 2 * i * lanes;
    T* to = a.runs[0].base + i * a.memory_step;
#if HWY_TARGET != HWY_SCALAR
    if (whole && interleaved) {
      const auto re = hn::LoadU(d, point), im = hn::LoadU(d, point + lanes);
      hn::StoreInterleaved2(re, im, d, to);
      continue;
    }
#endif
    for (int r = 0; r < a.run_count; ++r) {
      const LaneRun<T>& run = a.runs[r];
      to = run.base + i * a.memory_step;
      for (int lane = 0; lane < run.count; ++lane) {
        to[interleaved ? 2 * lane : lane] = point[run.first + lane];
        to[interleaved ? 2 * lane + 1 : lane + a.memory_im] = point[run.first + lane + lanes];
      }
    }
  }
}

template <class T>
void Fill(LineKernels<T>& kernels) {
  kernels.lanes = static_cast<index_t>(hn::Lanes(hn::ScalableTag<T>()));
  kernels.target = hwy::TargetName(HWY_TARGET);
  kernels.generic = &Generic<T>;
  kernels.copy = &Copy<T>;
  kernels.convolve = &Convolve<T>;
  kernels.split_pair = &SplitPair<T>;
  kernels.merge_pair = &MergePair<T>;
  kernels.rows_to_points = &RowsToPoints<T>;
  kernels.points_to_rows = &PointsToRows<T>;
  kernels.runs_to_points = &RunsToPoints<T>;
  kernels.points_to_runs = &PointsToRuns<T>;
  kernels.stream = &Stream<T>;
#if HWY_TARGET != HWY_SCALAR
  if (kernels.lanes >= 4) {
    kernels.halfcomplex_to_rows = &HalfcomplexToRows<T>;
    kernels.rows_to_halfcomplex = &RowsToHalfcomplex<T>;
  }
#endif
}

}  // namespace

void FillOtherFloat(LineKernels<float>& kernels) { Fill(kernels); }
void FillOtherDouble(LineKernels<double>& kernels) { Fill(kernels); }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::fft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::fft {

HWY_EXPORT(FillOtherFloat);
HWY_EXPORT(FillOtherDouble);

template <>
void LineKernels<float>::add_other_kernels(std::size_t target) {
  HWY_DISPATCH_TABLE(FillOtherFloat)[target](*this);
}
template <>
void LineKernels<double>::add_other_kernels(std::size_t target) {
  HWY_DISPATCH_TABLE(FillOtherDouble)[target](*this);
}

namespace {

/// Returns the index of a target's kernels in the tables of HWY_EXPORT. A build with a single target has one entry.
constexpr bool several_targets = (HWY_TARGETS & (HWY_TARGETS - 1)) != 0;
std::size_t index_of(const hwy::ChosenTarget& target) { return several_targets ? target.GetIndex() : 0; }

/// Returns whether line kernels with vectors of half the width exist. Every build for AVX3 has line kernels for AVX2,
/// and every processor with AVX-512 has AVX2.
bool has_half_vectors() { return (HWY_TARGETS & HWY_AVX2) != 0 && simd_target() == "AVX3"; }

}  // namespace

template <class T>
LineKernels<T> LineKernels<T>::of(Width width) {
  hwy::ChosenTarget half;
  half.Update(HWY_AVX2);
  const std::size_t target = index_of(width == Width::half && has_half_vectors() ? half : hwy::GetChosenTarget());
  LineKernels kernels;
  kernels.add_complex_passes(target);
  kernels.add_real_passes(target);
  kernels.add_other_kernels(target);
  return kernels;
}

template LineKernels<float> LineKernels<float>::of(Width);
template LineKernels<double> LineKernels<double>::of(Width);

}  // namespace convolume::fft
#endif  // HWY_ONCE
