// The transforms that bench_fft compares: those of this library, and FFTW called directly.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "bench/common/contest.hpp"
#include "bench/fft/fft_options.hpp"
#include "convolume/fft.hpp"

namespace convolume::bench {

/// Throws the exceptions of fft::Plan::make().
std::unique_ptr<Competitor> native_contestant(const fft::Problem& problem, fft::PrimeAlgorithm prime);

/// Makes a competitor with Backend::fftw of this library, planned with FFTW_ESTIMATE.
std::unique_ptr<Competitor> algorithm2_contestant(const fft::Problem& problem);

/// Makes a competitor with FFTW's own plan of a cube of edge n, out of place, in natural order. It is made with
/// FFTW_ESTIMATE: fast, and equal every time.
std::unique_ptr<Competitor> fftw_estimate_contestant(DataType type, fft::Kind kind, index_t n);

/// Plans with FFTW, and stores the knowledge of its planner (wisdom) on disk, so that each size is measured once. One
/// thread at a time.
class FftwPlanner {
 public:
  /// `wisdom` is the file for plans made with FFTW_MEASURE. Plans made with FFTW_PATIENT are in "<file>-patient",
  /// because FFTW would answer a request to measure with a patient plan that it knows. If empty, it is
  /// fftw-wisdom-float or -double in $XDG_CACHE_HOME/convolume, or else in ~/.cache/convolume.
  FftwPlanner(DataType type, std::filesystem::path wisdom);
  ~FftwPlanner();
  FftwPlanner(FftwPlanner&&) noexcept;

  /// Makes a competitor for cubes of edge n, out of place, in natural order. The planner must outlive the competitor.
  std::unique_ptr<Competitor> competitor(fft::Kind kind, index_t n, Implementation rigor);

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

/// Returns the name of the library that FftwPlanner calls, e.g. "fftw-3.3.10-sse2-avx-avx2-avx2_128".
std::string fftw_name(DataType type);

}  // namespace convolume::bench
