// The transforms that bench_fft compares: this library's, and FFTW's called without anything between.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "bench/common/contest.hpp"
#include "bench/fft/fft_options.hpp"
#include "convolume/fft.hpp"

namespace convolume::bench {

/// Throws what fft::Plan::make throws.
std::unique_ptr<Contestant> native_contestant(const fft::Problem& problem, fft::PrimeAlgorithm prime);

/// Backend::fftw of this library, planned with FFTW_ESTIMATE.
std::unique_ptr<Contestant> algorithm2_contestant(const fft::Problem& problem);

/// FFTW's own plan of a cube of edge n, out of place, natural order, made with FFTW_ESTIMATE: quick, and the same every
/// time.
std::unique_ptr<Contestant> fftw_estimate_contestant(DataType type, fft::Kind kind, index_t n);

/// Plans with FFTW and keeps what its planner has learnt on disk, so that a size is measured once. One thread at a
/// time.
class FftwPlanner {
 public:
  /// `wisdom` is the file of the plans made with FFTW_MEASURE; those of FFTW_PATIENT lie beside it in "<file>-patient",
  /// since FFTW would answer a request to measure with a patient plan that it knows. Empty: fftw-wisdom-float or
  /// -double in $XDG_CACHE_HOME/convolume, else in ~/.cache/convolume.
  FftwPlanner(DataType type, std::filesystem::path wisdom);
  ~FftwPlanner();
  FftwPlanner(FftwPlanner&&) noexcept;

  /// Cubes of edge n, out of place, natural order. The planner must outlive the contestant.
  std::unique_ptr<Contestant> contestant(fft::Kind kind, index_t n, Implementation rigor);

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

/// E.g. "fftw-3.3.10-sse2-avx-avx2-avx2_128"; the library that FftwPlanner calls.
std::string fftw_name(DataType type);

}  // namespace convolume::bench
