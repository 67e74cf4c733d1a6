// Discrete Fourier transforms of 1 to 3 dimensions: plan once, execute many times, from any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "convolume/tensor.hpp"

namespace convolume::fft {

/// What is transformed into what. `r2c` is always forward and `c2r` always backward; both are unnormalised, so that
/// c2r(r2c(x)) = x times the number of points. The sign of the exponent is -1 forward and +1 backward.
enum class Kind { r2c, c2r, c2c_forward, c2c_backward };

/// Order of the axes of a spectrum in memory. `natural` is (Z, Y, X*). `rotated` is (Y, X*, Z): the outer transform
/// writes its lines side by side (Feinberg 2015, Algorithm 2), which suits everything that works point by point.
enum class Order { natural, rotated };

/// Who computes. `native` is this library's own SIMD transforms, `fftw` the FFTW library. `measured` times both once
/// per problem and machine and remembers the faster in the wisdom store (docs/formats.md); its choice may differ
/// between machines and runs, so that training never asks for it by itself.
enum class Backend { native, fftw, measured };

/// How long FFTW may plan. Only `estimate` gives the same plan, and so the same bits, in every run. The native backend
/// plans by a cost model and does not look at it.
enum class Rigor { estimate, measure, patient };

/// How the native backend transforms a prime factor above 13. `automatic` follows the cost model. `generic` is the
/// definition with mirrored terms taken together; `rader` a cyclic convolution of length p-1 (Rader 1968),
/// `rader_padded` the same zero-padded to a length with small factors; `bluestein` a chirp (Bluestein 1970).
enum class PrimeAlgorithm { automatic, generic, rader, rader_padded, bluestein };

/// A transform of `batch` volumes. A length of 1 drops an axis: {1, 1, n} is one-dimensional. The space side holds
/// Z x Y x X real (r2c, c2r) or complex elements; the spectrum side holds X* = X/2 + 1 for real and X for complex
/// transforms.
struct Problem {
  DataType type = DataType::f32;
  Kind kind = Kind::r2c;
  Extent3 extent{};
  Order order = Order::natural;
  index_t batch = 1;
  /// Elements between the volumes of a batch, on the space side and on the spectrum side; 0 means dense.
  index_t space_distance = 0, spectrum_distance = 0;
  /// Elements between neighbours along (Z, Y, X); 0 means dense, axis by axis. Elements are real numbers on the space
  /// side of a real transform and complex numbers elsewhere. Strides nest: in the
  /// order of their sizes each one reaches past the points of the smaller ones (batch distances included), so that no
  /// two points share an address.
  Extent3 space_stride{0, 0, 0}, spectrum_stride{0, 0, 0};
  /// Only a box of this many first points of the space side is read (the others count as zero) or written; 0 means all,
  /// axis by axis. The native backend does not transform lines that hold nothing or of which nothing is wanted.
  Extent3 support{0, 0, 0};
  /// Whether input and output are the same memory: natural order, and the space side strided so that a row holds its
  /// spectrum (the default strides then leave 2 X* real numbers for a row).
  bool in_place = false;
  /// Whether execute() accepts pointers that are aligned to their element only, not to 64 bytes.
  bool unaligned = false;

  friend bool operator==(const Problem&, const Problem&) = default;
};

struct Options {
  Backend backend = Backend::native;
  Rigor rigor = Rigor::estimate;
  PrimeAlgorithm prime = PrimeAlgorithm::automatic;
  friend bool operator==(const Options&, const Options&) = default;
};

/// Runs body(begin, end, worker) over ranges that together cover [0, items) once and returns when all are done; ranges
/// may run at the same time where their workers differ, 0 <= worker < the number of workers given to execute().
using RangeBody = std::function<void(index_t begin, index_t end, int worker)>;
using ParallelFor = std::function<void(index_t items, const RangeBody& body)>;

/// An immutable transform. Cheap to copy. execute() may be called from any number of threads at once, each with its own
/// buffers and scratch; it allocates nothing by itself (FFTW may, inside).
class CONVOLUME_API Plan {
 public:
  /// Thread-safe. Throws InvalidArgument naming the field for extents, batches or strides that make no sense,
  /// OverflowError where a buffer would not fit the address space, std::bad_alloc where tables do not fit memory, and
  /// Unsupported for Backend::fftw in a library built without it; with Backend::measured also FormatError for a file
  /// that is no wisdom store.
  static Plan make(const Problem& problem, const Options& options = {});

  /// `in` is read only, unless the problem is in place. Pointers must be aligned to 64 bytes (or, if the problem says
  /// so, to their element; scratch always to 64) and the buffers must not overlap, scratch included (InvalidArgument).
  void execute(const void* in, void* out, void* scratch) const;
  /// The same bits with several workers; `scratch` holds scratch_bytes(workers). Not for use inside a task graph, which
  /// appends run() instead.
  void execute(const void* in, void* out, void* scratch, int workers, const ParallelFor& parallel_for) const;

  /// A transform is a sequence of passes; a pass is a number of items that are independent of each other, and needs
  /// every item of the pass before it. `shared` (shared_bytes(), one per execution) carries what passes hand on,
  /// `worker` (worker_bytes(), one per call that runs at the same time) is temporary. Both are aligned to 64 bytes, in
  /// and out as execute() wants them, which run() does not check. A single 1-D or 2-D transform is one item.
  int passes() const noexcept;
  index_t pass_items(int pass) const noexcept;
  void run(int pass, index_t begin, index_t end, const void* in, void* out, void* shared, void* worker) const;
  std::size_t shared_bytes() const noexcept;
  std::size_t worker_bytes() const noexcept;

  const Problem& problem() const noexcept;
  std::size_t space_bytes() const noexcept;     ///< of the space-side buffer, all batches
  std::size_t spectrum_bytes() const noexcept;  ///< of the spectrum-side buffer, all batches, padding included
  /// Of execute(): what is shared and the temporaries of so many workers.
  std::size_t scratch_bytes(int workers = 1) const noexcept;
  /// Complex elements between neighbours on (the axes of) a spectrum: strides of Z, Y and X*.
  Extent3 spectrum_stride() const noexcept;
  /// Complex elements of one spectrum, padding included. What a padding element of a dense spectrum holds is
  /// unspecified, but finite when the input is: pointwise work need not skip it.
  index_t spectrum_elements() const noexcept;
  /// 2.5 n log2 n for real and 5 n log2 n for complex transforms, per volume.
  double flops() const noexcept;
  /// Who computes: native or fftw.
  Backend backend() const noexcept;
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

/// Name and version of each backend, e.g. "native-0.1.0, fftw-3.3.10-sse2-avx".
CONVOLUME_API std::string backend_versions();

}  // namespace convolume::fft
