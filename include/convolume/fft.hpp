// Discrete Fourier transforms of 1 to 3 dimensions: plan once, execute many times, from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "convolume/tensor.hpp"

namespace convolume::fft {

/// What is transformed into what. `r2c` is always forward and `c2r` always backward; both are unnormalised, so that
/// c2r(r2c(x)) = x times the number of points. The sign of the exponent is -1 forward and +1 backward.
enum class Kind { r2c, c2r, c2c_forward, c2c_backward };

/// Order of the axes of a spectrum in memory. `natural` is (Z, Y, X*). `rotated` is (Y, X*, Z): the outer transform
/// writes its lines side by side (Feinberg 2015, Algorithm 2), which suits everything that works point by point.
enum class Order { natural, rotated };

/// Who computes. `fftw` needs no tuning; what a later backend adds is listed in backends().
enum class Backend { fftw };

/// How long planning may take. Only `estimate` gives the same plan, and so the same bits, in every run.
enum class Rigor { estimate, measure, patient };

/// A transform of `batch` volumes. A length of 1 drops an axis: {1, 1, n} is one-dimensional. Real volumes are
/// Z x Y x X, dense; X* = X/2 + 1 for r2c and c2r and X for c2c.
struct Problem {
  DataType type = DataType::f32;
  Kind kind = Kind::r2c;
  Extent3 extent{};
  Order order = Order::natural;
  index_t batch = 1;
  /// Elements between the volumes of a batch, on the space side and on the spectrum side; 0 means dense.
  index_t space_distance = 0, spectrum_distance = 0;
  /// Elements between rows (axis Y) and planes (axis Z) of the space side; 0 means dense.
  index_t row_stride = 0, plane_stride = 0;
  /// Only the first so many Z planes of the space side are read (the others count as zero) or written; 0 means all.
  /// With Order::rotated the transforms of the other planes are skipped.
  index_t planes = 0;
  /// Whether input and output are the same memory. Needs the space side strided so that a row holds its spectrum.
  bool in_place = false;

  friend bool operator==(const Problem&, const Problem&) = default;
};

struct Options {
  Backend backend = Backend::fftw;
  Rigor rigor = Rigor::estimate;
  friend bool operator==(const Options&, const Options&) = default;
};

/// An immutable transform. Cheap to copy. execute() may be called from any number of threads at once, each with its own
/// buffers and scratch; it allocates nothing by itself (FFTW may, inside).
class CONVOLUME_API Plan {
 public:
  /// Thread-safe. Throws InvalidArgument naming the field for extents, batches or strides that make no sense, and
  /// OverflowError where a buffer would not fit the address space.
  static Plan make(const Problem& problem, const Options& options = {});

  /// `in` is read only, unless the problem is in place. Pointers must be 64-byte aligned and must not overlap, scratch
  /// included (InvalidArgument). Batches with a distance that is no multiple of 64 bytes are served all the same.
  void execute(const void* in, void* out, void* scratch) const;

  const Problem& problem() const noexcept;
  std::size_t space_bytes() const noexcept;     ///< of the space-side buffer, all batches
  std::size_t spectrum_bytes() const noexcept;  ///< of the spectrum-side buffer, all batches, padding included
  std::size_t scratch_bytes() const noexcept;
  /// Complex elements between neighbours on (the axes of) a spectrum: strides of Z, Y and X*.
  Extent3 spectrum_stride() const noexcept;
  /// Complex elements of one spectrum, padding included. What a padding element holds is unspecified, but finite when
  /// the input is: pointwise work need not skip it.
  index_t spectrum_elements() const noexcept;
  /// 2.5 n log2 n for real and 5 n log2 n for complex transforms, per volume.
  double flops() const noexcept;
  /// Everything that decides the rounding, as text: backend, version and the steps of the plan.
  std::string describe() const;

  struct Impl;

 private:
  explicit Plan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// The smallest m >= n with no prime factor above 7; throws InvalidArgument for n < 1.
CONVOLUME_API index_t good_size(index_t n);

/// Plans kept for reuse by make(); 0 switches the cache off and empties it. The default is 256. Thread-safe.
CONVOLUME_API void set_plan_cache_capacity(std::size_t plans);
CONVOLUME_API std::size_t plan_cache_size();

/// Name and version of each backend, e.g. "fftw-3.3.10-sse2-avx".
CONVOLUME_API std::string backend_versions();

}  // namespace convolume::fft
