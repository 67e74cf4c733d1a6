// Convolutions of tensors that do not fit into memory. Tiles of the tensors are read, convolved and written one after
// the other, and transfers overlap with the computation (paper 001, which has two halves of a small memory).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "convolume/conv.hpp"
#include "convolume/machine.hpp"

namespace convolume {

/// A part of a tensor: samples, channels and voxels from `n`, `c` and `begin` on.
struct TensorBox {
  index_t n = 0, c = 0;
  Extent3 begin{0, 0, 0};
  Shape5 shape{};
  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};

/// A tensor that is read box by box: in memory, in a file, or anywhere else.
class CONVOLUME_API TensorSource {
 public:
  virtual ~TensorSource() = default;
  TensorSource(const TensorSource&) = delete;
  TensorSource& operator=(const TensorSource&) = delete;

  const std::string& name() const noexcept { return name_; }  ///< for messages, for example the file
  const Shape5& shape() const noexcept { return shape_; }
  DataType type() const noexcept { return type_; }
  /// Returns the shape of what is read or decoded as a whole, from multiples of it on: a chunk of a compressed file.
  /// One element if any box can be read alone. StreamOptions::x_chunk makes a plan count whole chunks.
  virtual Shape5 chunk() const noexcept { return {1, 1, {1, 1, 1}}; }
  /// Reads a box into `to`: box.shape.elements() elements in the plain layout, without gaps. NaN is read like any other
  /// value. One thread at a time. Throws InvalidArgument if the box does not lie within the tensor, and IoError or
  /// FormatError that name the file if it cannot be read.
  void read(const TensorBox& box, void* to);

 protected:
  TensorSource(std::string name, const Shape5& shape, DataType type)
      : name_(std::move(name)), shape_(shape), type_(type) {}

 private:
  virtual void do_read(const TensorBox& box, void* to) = 0;
  std::string name_;
  Shape5 shape_;
  DataType type_;
};

/// A tensor that is written box by box.
class CONVOLUME_API TensorSink {
 public:
  virtual ~TensorSink() = default;
  TensorSink(const TensorSink&) = delete;
  TensorSink& operator=(const TensorSink&) = delete;

  const std::string& name() const noexcept { return name_; }
  const Shape5& shape() const noexcept { return shape_; }
  DataType type() const noexcept { return type_; }
  /// Writes a box from `from`, which holds it as TensorSource::read() stores it. Each element is written once. One
  /// thread at a time. Throws InvalidArgument and IoError as TensorSource::read() does.
  void write(const TensorBox& box, const void* from);
  /// Completes the tensor. A file appears under its name now, complete and synced; without this call nothing appears.
  /// Throws IoError.
  virtual void finish() = 0;

 protected:
  TensorSink(std::string name, const Shape5& shape, DataType type)
      : name_(std::move(name)), shape_(shape), type_(type) {}

 private:
  virtual void do_write(const TensorBox& box, const void* from) = 0;
  std::string name_;
  Shape5 shape_;
  DataType type_;
};

/// Return a source or sink in memory. The view is plain with x stride 1. Its memory must outlive the result.
CONVOLUME_API std::unique_ptr<TensorSource> memory_source(const ConstTensorView& tensor);
CONVOLUME_API std::unique_ptr<TensorSink> memory_sink(const TensorView& tensor);

/// A file that holds the elements of a tensor in the plain layout, in the machine's byte order, from `offset` on.
struct RawFile {
  std::filesystem::path path;
  Shape5 shape{};
  DataType type = DataType::f32;
  std::uint64_t offset = 0;  ///< bytes before the first element
  /// Reads past the page cache (O_DIRECT), if the file system supports it. For measurements, and for files that are
  /// read once and are larger than memory.
  bool direct = false;
};
/// Opens a raw file. Throws IoError if it is missing or unreadable, and FormatError if it is too short for the shape.
/// Reading throws IoError if the file has become shorter.
CONVOLUME_API std::unique_ptr<TensorSource> raw_source(const RawFile& file);
/// Returns a source that copies from a mapping of the file. Pages that have been read may stay resident as long as the
/// system has memory. The file must not become shorter while it is read: this is checked before each box, but a file
/// that is cut in the meantime ends the process (SIGBUS). Throws as raw_source() does.
CONVOLUME_API std::unique_ptr<TensorSource> mapped_source(const RawFile& file);
/// Begins to write a raw file. Until finish(), the data lie beside it in a temporary file whose name is that of the
/// file with an added ".tmp-...". The sink removes it, except if the process is killed. The whole space of the file is
/// taken at once if the file system can do that, so a full disk is reported here. `offset` and `direct` must not be
/// set. Throws IoError.
CONVOLUME_API std::unique_ptr<TensorSink> raw_sink(const RawFile& file);

/// Extents of the tiles of y: samples, output channels and voxels; and the input channels that are read at a time.
struct StreamTile {
  index_t n = 1, k = 1, c = 1;
  Extent3 y{};
  friend bool operator==(const StreamTile&, const StreamTile&) = default;
};
/// Returns, for example, "n1 k32 z16 y512 x512 c32".
CONVOLUME_API std::string to_string(const StreamTile& tile);

/// The prices of reading x and w and of writing y. The default fits files in the page cache and fast disks.
struct StreamPrices {
  static constexpr TransferPrice file{.start = 2e-5, .jump = 1e-6, .element = 4e-9};
  TransferPrice x = file, w = file, y = file;
};

struct StreamOptions {
  /// Engine and choice for the whole problem, as for ConvPlan::make(). Gradients are not computed.
  ConvOptions conv{};
  /// Limit in bytes for all memory that the convolution holds beside the process itself: tiles, prepared weights and
  /// the working memory of the engine. 0 means no limit.
  std::size_t memory = 0;
  int threads = 1;  ///< that will compute; they need working memory each
  StreamPrices prices{};
  /// TensorSource::chunk() of x. Each tile reads all of the chunks that it meets, so tiles whose borders lie on those
  /// of chunks are cheaper. Samples are counted one by one. Bits do not depend on it.
  Shape5 x_chunk{1, 1, {1, 1, 1}};
  /// Most buffers per operand, at most 8. 1 transfers and computes one after the other, for comparison. 2 are the two
  /// halves of paper 001. More of them, of smaller tiles, even out steps that take different times. So the plan
  /// compares the estimated times of 2 buffers to this many, each with its best tiles. With a given `tile`, this many
  /// are used. Weights have at least 4 if their tiles are small: they are read in turn with x, and must not hold it up.
  int buffers = 4;
  /// Tiles to use instead of the cheapest ones. They are rounded up to what the engine can cut (see StreamedConv).
  std::optional<StreamTile> tile{};
  /// A stop request ends StreamedConv::make() with StopRequested.
  std::stop_token stop{};
};

/// What a streamed convolution will do, by operand in the order x, w, y.
struct StreamCosts {
  StreamTile tile{};
  bool channels_outermost = false;  ///< output channels are the outermost loop, so x is read once per part of them
  std::array<int, 3> buffers{};     ///< of x, w and y
  index_t tiles = 0;                ///< executions of the engine
  /// Transfers, bytes, stretches of neighbouring elements and seconds. If x has chunks, its bytes are those of whole
  /// chunks, and each chunk is a stretch.
  std::array<double, 3> loads{}, bytes{}, runs{}, transfer_seconds{};
  double compute_seconds = 0;  ///< by the cost model, on all threads
  double seconds = 0;          ///< estimated; transfers overlap with the computation if there are several buffers
  std::size_t peak_bytes = 0;  ///< of everything that StreamOptions::memory limits
};

/// What a run did.
struct StreamReport {
  double seconds = 0;
  double read_seconds = 0, write_seconds = 0, compute_seconds = 0;  ///< busy times; they overlap
  index_t tiles = 0;
  /// Returns which share of the transfers and computation beyond the longest of them was hidden behind it: 1 if all.
  CONVOLUME_API double overlap() const noexcept;
};

/// An immutable way to convolve tensors that do not fit into memory. The engine and its choice are fixed for the whole
/// problem, and every tile is an ordinary plan with this choice. Tiles of fft_tiled are cut at whole multiples of its
/// valid voxels, so with every engine the result has the bits of ConvPlan::forward() on plain tensors, as long as input
/// channels are not split. They are split only if nothing else fits; then the sums of the parts are added, and differ
/// by rounding. fft_volume transforms whole volumes and is not streamed: `automatic` takes the next engine.
///
/// All members are thread-safe.
class CONVOLUME_API StreamedConv {
 public:
  /// Makes a plan for the forward pass. Layouts of the problem must be plain. Throws Unsupported for transposed
  /// problems, for fft_volume and onednn, and if no engine serves the problem. Throws InvalidArgument for an invalid
  /// option, and if no tile fits into the memory; then it names the least possible value.
  static StreamedConv make(const ConvProblem& problem, const StreamOptions& options = {});

  const ConvProblem& problem() const noexcept;
  /// Returns the plan for the whole problem. Its tensors need not fit into memory.
  const ConvPlan& plan() const noexcept;
  const StreamCosts& costs() const noexcept;
  /// Returns a report: ConvPlan::explain(), the tiles, and the reason if another engine was taken than for tensors in
  /// memory.
  std::string explain() const;

  /// Convolves. `bias` is bound as in ForwardBindings. Reading and writing run on two threads of their own. `progress`
  /// is called after each tile by the calling thread. Returns nothing if a stop request ended the run; y is then not
  /// finished. Throws ShapeMismatch if shapes or types differ from the problem's, and what sources and sinks throw.
  std::optional<StreamReport> run(const Execution& run, TensorSource& x, TensorSource& w, const ConstTensorView& bias,
                                  TensorSink& y, const std::function<void(index_t done, index_t tiles)>& progress = {},
                                  std::stop_token stop = {}) const;

  struct Impl;

 private:
  explicit StreamedConv(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace convolume
