// What stands behind a transform plan: geometry common to all backends, and the backend's own steps.
#pragma once

#include <string>
#include <vector>

#include "convolume/cpu.hpp"
#include "convolume/fft.hpp"

namespace convolume::fft {

/// The problem with every default filled in and every size checked.
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
  std::string target = simd_target();  // whose kernels a native plan holds
  Geometry geometry;
  std::vector<index_t> pass_items;
  std::size_t shared_bytes = 0, worker_bytes = 0;  // multiples of 64
};

/// Plans with FFTW; takes the process-wide planner lock.
std::shared_ptr<const Plan::Impl> make_fftw_plan(const Problem& problem, const Options& options);

/// Empty where the library was built without it.
std::string fftw_backend_version();

/// The native backend's way for small volumes (halfcomplex_plan.cpp); null where it is none.
std::shared_ptr<const Plan::Impl> make_halfcomplex_plan(const Problem& problem, const Options& options);

/// The native backend (volume_plan.cpp).
std::shared_ptr<const Plan::Impl> make_native_plan(const Problem& problem, const Options& options);

/// The backend that was faster for this problem on this machine: from the wisdom store, or measured now and stored.
Backend measured_backend(const Problem& problem, const Options& options);

/// The cached plan for a problem, or a new one.
std::shared_ptr<const Plan::Impl> cached_plan(const Problem& problem, const Options& options);

}  // namespace convolume::fft
