// The implementation of a transform plan: the geometry that all backends share, and the steps of one backend.
#pragma once

#include <string>
#include <vector>

#include "convolume/cpu.hpp"
#include "convolume/fft.hpp"

namespace convolume::fft {

/// The problem with all defaults filled in and all sizes checked.
struct Geometry {
  explicit Geometry(const Problem& problem);

  bool real;         // r2c or c2r
  bool forward;      // r2c or c2c_forward
  index_t x_star;    // spectrum points along X
  index_t z_padded;  // Z padded to the alignment (rotated order: in the spectrum)
  bool padding;      // whether the spectrum has points behind its lines that execute() must leave finite
  Extent3 support;
  Extent3 space_stride;     // in elements of the space side
  Extent3 spectrum_stride;  // complex elements
  index_t space_distance, spectrum_distance;
  index_t spectrum_elements;
  std::size_t space_element_bytes, complex_bytes;
  std::size_t space_bytes, spectrum_bytes;
};

struct Plan::Impl {
  Impl(const Problem& p, const Options& o) : problem(p), options(o), geometry(p) {}
  virtual ~Impl() = default;
  virtual void run(int pass, index_t begin, index_t end, const void* in, void* out, void* shared,
                   void* worker) const = 0;
  virtual std::string describe() const = 0;

  Problem problem;
  Options options;
  std::string target = simd_target();  // the SIMD target whose kernels a native plan holds
  Geometry geometry;
  std::vector<index_t> pass_items;
  std::size_t shared_bytes = 0, worker_bytes = 0;  // multiples of 64
};

/// Makes a plan that uses FFTW. Takes the process-wide planner lock.
std::shared_ptr<const Plan::Impl> make_fftw_plan(const Problem& problem, const Options& options);

/// Returns the name and version of FFTW, or an empty string if the library was built without it.
std::string fftw_backend_version();

/// Makes the native backend's plan for small volumes (halfcomplex_plan.cpp). Returns null if it does not support the
/// problem.
std::shared_ptr<const Plan::Impl> make_halfcomplex_plan(const Problem& problem, const Options& options);

/// Makes a plan of the native backend (volume_plan.cpp).
std::shared_ptr<const Plan::Impl> make_native_plan(const Problem& problem, const Options& options);

/// Returns the backend that is faster for this problem on this machine, from the wisdom store. If the store has no
/// entry, measures both backends and stores the result.
Backend measured_backend(const Problem& problem, const Options& options);

/// Returns the cached plan for a problem, or makes a new one.
std::shared_ptr<const Plan::Impl> cached_plan(const Problem& problem, const Options& options);

}  // namespace convolume::fft
