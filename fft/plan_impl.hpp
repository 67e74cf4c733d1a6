// What stands behind a transform plan: geometry common to all backends, and the backend's own steps.
#pragma once

#include "convolume/fft.hpp"

namespace convolume::fft {

/// The problem with every default filled in and every size checked.
struct Geometry {
  explicit Geometry(const Problem& problem);

  bool real;                                         // r2c or c2r
  bool forward;                                      // r2c or c2c_forward
  index_t x_star;                                    // spectrum points along X
  index_t x_padded;                                  // X* padded to the alignment (rotated order: in scratch)
  index_t z_padded;                                  // Z padded to the alignment (rotated order: in the spectrum)
  index_t planes;                                    // Z planes read or written on the space side
  index_t row_stride, plane_stride, space_distance;  // space side, in its elements
  Extent3 spectrum_stride;                           // complex elements
  index_t spectrum_elements, spectrum_distance;
  std::size_t space_element_bytes, complex_bytes;
  std::size_t space_bytes, spectrum_bytes;
};

struct Plan::Impl {
  Impl(const Problem& p, const Options& o) : problem(p), options(o), geometry(p) {}
  virtual ~Impl() = default;
  virtual void execute(const void* in, void* out, void* scratch) const = 0;
  virtual std::string describe() const = 0;

  Problem problem;
  Options options;
  Geometry geometry;
  std::size_t scratch_bytes = 0;
};

/// Plans with FFTW; takes the process-wide planner lock.
std::shared_ptr<const Plan::Impl> make_fftw_plan(const Problem& problem, const Options& options);

/// The cached plan for a problem, or a new one.
std::shared_ptr<const Plan::Impl> cached_plan(const Problem& problem, const Options& options);

}  // namespace convolume::fft
