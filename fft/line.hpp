// Transforms of lines. A length is factorised into passes. The passes run on as many lines at once as a vector has
// lanes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "convolume/fft.hpp"
#include "fft/line_kernels.hpp"

namespace convolume::fft {

/// Points of lines in memory. Each point is a vector of lanes; its imaginary part lies `im` elements after its real
/// part.
template <class T>
struct Points {
  T* data;
  std::ptrdiff_t step, im;
  /// Distance in elements from these lines to the lines that are read next, for prefetching; 0 prefetches nothing.
  std::ptrdiff_t ahead = 0;
  /// Returns the points with real and imaginary parts swapped. This turns a forward transform into a backward one.
  Points swapped() const { return {data + im, step, -im, ahead}; }
};

/// The transform of lines of one length, for one SIMD target. Immutable and thread-safe.
template <class T>
class Line {
 public:
  /// `prime` selects the algorithm for prime factors above 13.
  Line(index_t n, PrimeAlgorithm prime, const LineKernels<T>& kernels = LineKernels<T>::of(Width::whole));
  ~Line();
  Line(Line&&) noexcept;

  index_t length() const noexcept { return n_; }
  index_t lanes() const noexcept { return kernels_.lanes; }
  const LineKernels<T>& kernels() const noexcept { return kernels_; }
  /// Returns the elements of scratch that one call of any transform below needs, a multiple of the lanes.
  index_t scratch_elements() const noexcept { return scratch_; }
  /// Returns how many lines share each pass if a call transforms several lines.
  index_t together() const noexcept { return together_; }
  /// Returns whether a transform runs in one pass, from memory to memory.
  bool single_pass() const noexcept { return steps_.size() == 1 && steps_[0].prime == nullptr; }

  /// Computes the forward transform of all lanes, or the backward transform if `in` and `out` are swapped(). in == out
  /// is allowed. Points of `in` from in_points on count as zero; points of `out` from out_points on are not written.
  /// Successive lines lie in_line and out_line elements apart. Here and below, the first pass issues `prefetch`.
  void complex_lines(Points<const T> in, Points<T> out, T* scratch, index_t in_points, index_t out_points,
                     index_t lines, std::ptrdiff_t in_line, std::ptrdiff_t out_line,
                     const Prefetch<T>& prefetch = {}) const;
  void complex(Points<const T> in, Points<T> out, T* scratch, index_t in_points, index_t out_points) const {
    complex_lines(in, out, scratch, in_points, out_points, 1, 0, 0);
  }
  void complex(Points<const T> in, Points<T> out, T* scratch) const { complex(in, out, scratch, n_, n_); }

  /// Returns whether real() and hermitian() exist. Lines with prime factors above 13 lack them and are transformed in
  /// pairs instead.
  bool has_real() const noexcept { return has_real_; }
  /// Transforms n real points into n/2 + 1 complex points, or back (unnormalised), for several lines. in and out must
  /// not overlap.
  void real(const T* in, std::ptrdiff_t in_step, Points<T> out, T* scratch, index_t lines = 1,
            std::ptrdiff_t in_line = 0, std::ptrdiff_t out_line = 0, const Prefetch<T>& prefetch = {}) const {
    real_lines(false, {in, in_step, 0}, out, scratch, lines, in_line, out_line, prefetch, n_);
  }
  /// The same for lines whose points from in_points on count as zero.
  void real_pruned(const T* in, std::ptrdiff_t in_step, index_t in_points, Points<T> out, T* scratch, index_t lines,
                   std::ptrdiff_t in_line, std::ptrdiff_t out_line, const Prefetch<T>& prefetch) const {
    real_lines(false, {in, in_step, 0}, out, scratch, lines, in_line, out_line, prefetch, in_points);
  }
  void hermitian(Points<const T> in, T* out, std::ptrdiff_t out_step, T* scratch, index_t lines = 1,
                 std::ptrdiff_t in_line = 0, std::ptrdiff_t out_line = 0, const Prefetch<T>& prefetch = {}) const {
    real_lines(true, in, {out, out_step, 0}, scratch, lines, in_line, out_line, prefetch, n_);
  }

  /// Returns the passes as text, e.g. "16x9" or "rader113(16x7)".
  std::string describe() const;

 private:
  struct Prime;  // a radix that does not fit into registers
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
