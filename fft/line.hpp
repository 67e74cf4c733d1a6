// Transforms of lines: a length is factorised into passes, and the passes run on as many lines at once as a vector has
// lanes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "convolume/fft.hpp"
#include "fft/line_kernels.hpp"

namespace convolume::fft {

/// Points of lines in memory: a vector of lanes each, real and imaginary part `im` elements apart.
template <class T>
struct Points {
  T* data;
  std::ptrdiff_t step, im;
  /// Where lines that will be read next lie, in elements from these; 0 asks for nothing.
  std::ptrdiff_t ahead = 0;
  /// Real and imaginary part exchanged, which turns a forward transform into a backward one.
  Points swapped() const { return {data + im, step, -im, ahead}; }
};

/// How lines of one length are transformed, for one SIMD target. Immutable and thread-safe.
template <class T>
class Line {
 public:
  /// `prime` is how prime factors above 13 are transformed.
  Line(index_t n, PrimeAlgorithm prime, const LineKernels<T>& kernels = LineKernels<T>::of(Width::whole));
  ~Line();
  Line(Line&&) noexcept;

  index_t length() const noexcept { return n_; }
  index_t lanes() const noexcept { return kernels_.lanes; }
  const LineKernels<T>& kernels() const noexcept { return kernels_; }
  /// Elements of scratch for one call of any of the transforms below, a multiple of the lanes.
  index_t scratch_elements() const noexcept { return scratch_; }
  /// How many lines share each pass where a call names several.
  index_t together() const noexcept { return together_; }
  /// Whether a transform runs in one pass, from memory to memory.
  bool single_pass() const noexcept { return steps_.size() == 1 && steps_[0].prime == nullptr; }

  /// Forward, all lanes; backward with both sides swapped. in == out is allowed. Points of `in` beyond in_points count
  /// as zero; points of `out` beyond out_points are not written. Several lines lie in_line and out_line elements apart.
  /// Here and below, `prefetch` goes with the first pass.
  void complex_lines(Points<const T> in, Points<T> out, T* scratch, index_t in_points, index_t out_points,
                     index_t lines, std::ptrdiff_t in_line, std::ptrdiff_t out_line,
                     const Prefetch<T>& prefetch = {}) const;
  void complex(Points<const T> in, Points<T> out, T* scratch, index_t in_points, index_t out_points) const {
    complex_lines(in, out, scratch, in_points, out_points, 1, 0, 0);
  }
  void complex(Points<const T> in, Points<T> out, T* scratch) const { complex(in, out, scratch, n_, n_); }

  /// Whether real() and hermitian() exist; lines with large prime factors are transformed in pairs instead.
  bool has_real() const noexcept { return has_real_; }
  /// n real points to n/2 + 1 complex ones, and back (unnormalised), for several lines. in and out must not overlap.
  void real(const T* in, std::ptrdiff_t in_step, Points<T> out, T* scratch, index_t lines = 1,
            std::ptrdiff_t in_line = 0, std::ptrdiff_t out_line = 0, const Prefetch<T>& prefetch = {}) const {
    real_lines(false, {in, in_step, 0}, out, scratch, lines, in_line, out_line, prefetch, n_);
  }
  /// Of lines whose points beyond in_points count as zero.
  void real_pruned(const T* in, std::ptrdiff_t in_step, index_t in_points, Points<T> out, T* scratch, index_t lines,
                   std::ptrdiff_t in_line, std::ptrdiff_t out_line, const Prefetch<T>& prefetch) const {
    real_lines(false, {in, in_step, 0}, out, scratch, lines, in_line, out_line, prefetch, in_points);
  }
  void hermitian(Points<const T> in, T* out, std::ptrdiff_t out_step, T* scratch, index_t lines = 1,
                 std::ptrdiff_t in_line = 0, std::ptrdiff_t out_line = 0, const Prefetch<T>& prefetch = {}) const {
    real_lines(true, in, {out, out_step, 0}, scratch, lines, in_line, out_line, prefetch, n_);
  }

  /// E.g. "16x9" or "rader113(16x7)".
  std::string describe() const;

 private:
  struct Prime;  // a radix that is not held in registers
  struct Step {
    int radix = 1;
    index_t before = 1, after = 1;
    std::vector<T> twiddles;
    std::shared_ptr<const Prime> prime;
  };

  PassArguments<T> pass(const Step& step, Points<const T> in, Points<T> out) const;
  void real_lines(bool backward, Points<const T> in, Points<T> out, T* scratch, index_t lines, std::ptrdiff_t in_line,
                  std::ptrdiff_t out_line, const Prefetch<T>& prefetch, index_t in_points) const;
  void run_step(const Step& step, const PassArguments<T>& arguments, T* scratch) const;

  index_t n_;
  LineKernels<T> kernels_;
  std::vector<Step> steps_;
  bool has_real_ = true;
  index_t scratch_ = 0;
  index_t prime_scratch_ = 0;
  index_t together_ = 1;
};

}  // namespace convolume::fft
