// Discrete Fourier transforms of 1 to 3 dimensions: planned once, executed many times, from any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "convolume/tensor.hpp"

namespace convolume::fft {

/// The transform. `r2c` is always forward and `c2r` always backward. The sign of the exponent is -1 forward and +1
/// backward. No direction is normalised: c2r(r2c(x)) is x times the number of points.
enum class Kind { r2c, c2r, c2c_forward, c2c_backward };

/// Order of the axes of a spectrum in memory, X fastest or Z fastest. `natural` is (Z, Y, X*). `rotated` is (Y, X*, Z):
/// the lines of the outer transform lie side by side (Feinberg 2015, Algorithm 2), which suits pointwise work.
enum class Order { natural, rotated };

/// The implementation. `native` is this library's own SIMD code; `fftw` is the FFTW library. `measured` times both once
/// per problem and machine, and remembers the faster one in the wisdom store (docs/formats.md). Its choice may differ
/// between machines and runs, so training never selects it by itself.
enum class Backend { native, fftw, measured };

/// Planning effort of FFTW. Only `estimate` gives the same plan, and so the same bits, in every run. The native backend
/// ignores it, because it plans by a cost model.
enum class Rigor { estimate, measure, patient };

/// How the native backend transforms a prime factor above 13. `automatic` follows the cost model. `generic` is the
/// definition of the DFT with mirrored terms combined. `rader` is a cyclic convolution of length p-1 (Rader 1968).
/// `rader_padded` is the same, zero-padded to a length with small factors. `bluestein` is a chirp transform (Bluestein
/// 1970).
enum class PrimeAlgorithm { automatic, generic, rader, rader_padded, bluestein };

/// A transform of `batch` volumes. A length of 1 removes an axis: {1, 1, n} is one-dimensional. The space side holds Z
/// x Y x X elements, real for r2c and c2r, otherwise complex. The spectrum side holds Z x Y x X* complex elements,
/// where X* is X/2 + 1 for real transforms and X for complex ones.
struct Problem {
  DataType type = DataType::f32;
  Kind kind = Kind::r2c;
  Extent3 extent{};
  Order order = Order::natural;
  index_t batch = 1;
  /// Elements between consecutive volumes of the batch; 0 means dense.
  index_t space_distance = 0, spectrum_distance = 0;
  /// Elements between neighbours along (Z, Y, X); 0 means dense, for each axis by itself. Elements are real numbers on
  /// the space side of a real transform, and complex numbers elsewhere. Strides must nest: if they are sorted by size
  /// (batch distances included), each stride reaches past all points of the smaller ones. So no two points share an
  /// address.
  Extent3 space_stride{0, 0, 0}, spectrum_stride{0, 0, 0};
  /// Extent of the box of first points on the space side that is read (forward; all other points count as zero) or
  /// written (backward). 0 means all, for each axis by itself. The native backend skips lines that are zero or not
  /// wanted.
  Extent3 support{0, 0, 0};
  /// Whether input and output are the same memory. This needs the natural order, and space strides that leave room for
  /// the spectrum of each row. The default strides do: they give a row of a real transform 2 X* real numbers.
  bool in_place = false;
  /// Whether execute() accepts pointers that are aligned only to their element type instead of 64 bytes.
  bool unaligned = false;

  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Options of a plan. The native backend ignores `rigor`, FFTW ignores `prime` and `z_first`.
struct Options {
  Backend backend = Backend::native;
  Rigor rigor = Rigor::estimate;
  PrimeAlgorithm prime = PrimeAlgorithm::automatic;
  /// Whether small real volumes whose spectrum is in natural order may be transformed along Z first, which is faster.
  /// `fft_volume` does not allow it: its choice text has always stood for the bits of the other order.
  bool z_first = true;
  friend bool operator==(const Options&, const Options&) = default;
};

/// A caller's parallel loop. It calls body(begin, end, worker) for ranges that together cover [0, items) exactly once,
/// and returns when all calls have returned. Calls may run concurrently if their `worker` values differ. 0 <= worker <
/// the number of workers passed to execute().
using RangeBody = std::function<void(index_t begin, index_t end, int worker)>;
using ParallelFor = std::function<void(index_t items, const RangeBody& body)>;

/// An immutable transform. Cheap to copy. Any number of threads may call execute() at once, each with its own buffers
/// and scratch. execute() allocates nothing itself; FFTW may allocate.
class CONVOLUME_API Plan {
 public:
  /// Makes a plan. Thread-safe. Throws InvalidArgument that names the field for invalid extents, batches or strides;
  /// OverflowError if a buffer does not fit the address space; std::bad_alloc if there is no memory for tables;
  /// Unsupported for Backend::fftw in a library built without FFTW; and FormatError, for Backend::measured, if the
  /// wisdom file is not a wisdom store.
  static Plan make(const Problem& problem, const Options& options = {});

  /// Transforms `in` to `out`. `in` is not changed, unless the problem is in place; then in == out. `scratch` holds
  /// scratch_bytes(). Throws InvalidArgument if a pointer is not aligned to 64 bytes (in and out: to their element, if
  /// the problem is `unaligned`), or if buffers overlap, scratch included.
  void execute(const void* in, void* out, void* scratch) const;
  /// Computes the same bits with several workers. `scratch` holds scratch_bytes(workers). In a task graph, append tasks
  /// that call run() instead.
  void execute(const void* in, void* out, void* scratch, int workers, const ParallelFor& parallel_for) const;

  /// A transform is a sequence of passes. A pass is a set of independent items. Each pass needs all items of the pass
  /// before. run() computes items [begin, end) of one pass. `shared` (shared_bytes(), one per execution) carries data
  /// between passes. `worker` (worker_bytes(), one per concurrent call) is temporary. Both must be aligned to 64 bytes,
  /// `in` and `out` as for execute(); run() does not check this. A single 1-D or 2-D transform has one item.
  int passes() const noexcept;
  index_t pass_items(int pass) const noexcept;
  void run(int pass, index_t begin, index_t end, const void* in, void* out, void* shared, void* worker) const;
  std::size_t shared_bytes() const noexcept;
  std::size_t worker_bytes() const noexcept;

  const Problem& problem() const noexcept;
  std::size_t space_bytes() const noexcept;     ///< of the space-side buffer, whole batch
  std::size_t spectrum_bytes() const noexcept;  ///< of the spectrum-side buffer, whole batch, padding included
  /// Returns the bytes of scratch that execute() needs: the shared bytes and the temporaries of all workers.
  std::size_t scratch_bytes(int workers = 1) const noexcept;
  /// Returns the strides of a spectrum along Z, Y and X*, in complex elements.
  Extent3 spectrum_stride() const noexcept;
  /// Returns the complex elements of one spectrum, padding included. Padding elements of a dense spectrum have
  /// unspecified values, which are finite if the input is finite. So pointwise work need not skip them.
  index_t spectrum_elements() const noexcept;
  /// Returns the nominal operations per volume: 2.5 n log2 n for real and 5 n log2 n for complex transforms.
  double flops() const noexcept;
  /// Returns the backend of this plan: native or fftw.
  Backend backend() const noexcept;
  /// Returns everything that decides rounding, as text: backend, version and the steps of the plan.
  std::string describe() const;

  struct Impl;

 private:
  explicit Plan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// Returns the smallest m >= n without a prime factor above 7. Throws InvalidArgument if n < 1.
CONVOLUME_API index_t good_size(index_t n);

/// Sets how many plans make() keeps for reuse; 0 empties the cache and switches it off. The default is 256.
/// Thread-safe.
CONVOLUME_API void set_plan_cache_capacity(std::size_t plans);
CONVOLUME_API std::size_t plan_cache_size();

/// Returns name and version of each backend, e.g. "native-0.1.0, fftw-3.3.10-sse2-avx".
CONVOLUME_API std::string backend_versions();

}  // namespace convolume::fft
