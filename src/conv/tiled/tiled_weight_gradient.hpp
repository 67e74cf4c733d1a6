// Computes the direction of fft_tiled that sums over tiles: dw from x and dy.
#pragma once

#include <optional>
#include <utility>

#include "conv/caches/buffer_store.hpp"
#include "conv/caches/run_buffers.hpp"
#include "conv/engine.hpp"
#include "conv/spectra/tile_grid.hpp"
#include "conv/spectra/tile_spectra.hpp"
#include "conv/spectra/transform_meter.hpp"
#include "conv/tensor_io/tile_io.hpp"
#include "conv/tiled/lane_spectra.hpp"
#include "plan/sides.hpp"

namespace convolume::conv {

/// Spectra of all tiles that the forward pass (of x) and backward data (of dy) have stored, and the tasks that complete
/// them.
struct SharedSpectra {
  bool x = false;  ///< the bound x_hat holds the spectra of x
  std::shared_ptr<BufferStore> dy;
  std::optional<RunBuffers> dy_buffers{};  ///< memory of `dy`; the weight gradient ends its use
  /// Memory that backward data no longer needs when the tasks in `ready` are complete, or null. It is used for the sums
  /// of the weight gradient and holds at least sums_bytes() bytes; the weight gradient ends its use.
  std::shared_ptr<BufferStore> sums{};
  std::optional<RunBuffers> sums_buffers{};
  std::vector<TaskId> ready;
};

/// Transforms x, and the valid part of dy with zeros behind it. Sums products over tiles, in their order, for each
/// frequency. Then there is one inverse transform per pair of channels. Rows of the products are input channels, lanes
/// are output channels.
///
/// If the directions share tiles, the spectra of the other directions are read, and all tiles are one chunk. Spectra
/// that were not kept are computed again, a chunk at a time; the chunks add to the same sums in the order of the tiles,
/// which gives the same bits. Otherwise all tiles go through one stage after the other, a chunk at a time. The
/// exception is x with few channels whose sums all fit into the L2. Then the tiles are divided into parts, which go
/// through all stages. Each part has its own sums, and these are added in order. So the spectra of dy never leave the
/// L2.
///
/// In this class, "x" is the tensor of the high-resolution side and "dy" that of the low-resolution side; see
/// plan::Sides. For a transposed convolution these are the gradient of y, and x. The activation's gradient is applied
/// on the side that y is on. Immutable and thread-safe.
template <class T>
class TiledWeightGradient {
 public:
  TiledWeightGradient(const plan::Sides& sides, const Activation& activation, const plan::Tilings& tilings,
                      TransformMeter& meter);

  std::string describe() const;
  /// Returns the bytes of the sums of a run.
  std::size_t sums_bytes() const { return bytes_of(weights_.elements() * std::max<index_t>(1, parts_)); }
  /// Appends tasks that compute the weight gradient. They also compute the spectra that `shared` does not have.
  /// `shared` can have spectra only if tilings.shared.
  Ready append(TaskGraph& graph, const ConvReady& ready, const std::shared_ptr<const BackwardArguments>& a,
               const SharedSpectra& shared) const;

 private:
  static constexpr index_t lanes = fft::tile_lanes<T>;
  struct Run;  // the memory of one run of a graph

  /// Return the first column of a part. The columns of all samples, whose tiles share the lanes of x, are divided into
  /// parts_ ranges. The functions below map the index of a column to its sample, its description and its first tile.
  index_t first_column(index_t part) const {
    return problem_.batch * static_cast<index_t>(columns_.size()) * part / parts_;
  }
  index_t sample(index_t column) const { return column / static_cast<index_t>(columns_.size()); }
  const TileColumn& column(index_t i) const { return columns_[static_cast<std::size_t>(i) % columns_.size()]; }
  index_t first_tile(index_t i) const { return sample(i) * grid_.per_sample() + column(i).first; }
  /// Returns the scratch of the transforms of a row of tiles of x, or of dy. Only steps have rows of several tiles.
  std::size_t scratch_bytes() const {
    const index_t most = parts_ > 0 ? std::min(chunk_, grid_.tiling.count.x) : 1;
    return std::max(
        in_.scratch_bytes() + row_bytes(in_, row_of(grid_, 0, 1, problem_.x_layout, 0), true),
        gradient_.scratch_bytes() + row_bytes(gradient_, row_of(grid_, 0, most, problem_.y_layout, 0), true));
  }
  static std::size_t bytes_of(index_t elements) { return static_cast<std::size_t>(elements) * sizeof(T); }
  std::size_t tile_scratch_bytes() const;
  /// Returns the scratch of sum_step().
  std::size_t step_scratch_bytes() const { return scratch_bytes() + bytes_of(dy_.elements() + dy_.block_elements()); }
  /// Returns the scratch of sum_part().
  std::size_t part_scratch_bytes() const { return bytes_of(x_.elements()) + step_scratch_bytes() + 128; }
  /// Returns the scratch of invert() for so many channels.
  std::size_t inverse_scratch_bytes(index_t channels) const;
  void transform_x(const BackwardArguments& a, index_t tile, index_t place, T* spectra, T* scratch) const;
  void transform_dy(const BackwardArguments& a, index_t tile, index_t place, T* spectra, T* scratch) const;
  template <class Source>
  void stream_spectra(const fft::TilePlan<T>& plan, Counted what, const PhasedChannels& channels, const Source& source,
                      const TileSpectra<T>& layout, T* spectra, T* scratch) const;
  TileSource<T> x_source(const BackwardArguments& a, index_t tile, index_t phase, index_t channel) const;
  TileSource<T> dy_source(const BackwardArguments& a, index_t tile, std::optional<index_t> next, index_t channel) const;
  void multiply_block(index_t frequencies, index_t tiles, const T* x, const T* dy, bool add, T* sums) const;
  void multiply_rows(index_t frequencies, index_t rows, index_t tiles, const T* x, const T* dy, bool add,
                     T* sums) const;
  void sum_products(const Run& run, index_t first_block, index_t last_block, index_t chunk, const BackwardArguments& a,
                    T* sums) const;
  void invert(const BackwardArguments& a, index_t channel, index_t count, index_t column, const T* sums) const;

  void sum_part(const BackwardArguments& a, index_t part, T* sums) const;
  void sum_step(const BackwardArguments& a, index_t first, index_t count, std::optional<index_t> next, const T* x,
                bool add, T* sums, T* scratch) const;
  std::vector<TaskId> append_parts(TaskGraph& graph, const ConvReady& ready,
                                   const std::shared_ptr<const BackwardArguments>& a, const std::shared_ptr<Run>& run,
                                   TaskId memory) const;
  void collect(const ConvReady& ready, index_t tile, bool with_dy, std::vector<TaskId>& after) const;
  std::vector<TaskId> append_chunks(TaskGraph& graph, const ConvReady& ready,
                                    const std::shared_ptr<const BackwardArguments>& a, const std::shared_ptr<Run>& run,
                                    const std::vector<TaskId>& before) const;
  std::vector<TaskId> append_transforms(TaskGraph& graph, const ConvReady& ready,
                                        const std::shared_ptr<const BackwardArguments>& a,
                                        const std::shared_ptr<Run>& run, index_t chunk,
                                        const std::vector<TaskId>& after) const;
  std::vector<TaskId> append_products(TaskGraph& graph, const std::shared_ptr<const BackwardArguments>& a,
                                      const std::shared_ptr<Run>& run, index_t chunk,
                                      const std::vector<TaskId>& transforms, const std::vector<TaskId>& previous) const;
  std::vector<TaskId> append_inverses(TaskGraph& graph, const std::shared_ptr<const BackwardArguments>& a,
                                      const std::shared_ptr<Run>& run, const std::vector<TaskId>& products) const;

  bool activated() const { return activation_.kind != Activation::Kind::none; }
  Counted x_counted() const { return sides_.high_res(Counted::input, Counted::gradient); }
  Counted dy_counted() const { return sides_.low_res(Counted::input, Counted::gradient); }
  /// Return the tensors of both sides.
  View<const T> high_res(const BackwardArguments& a) const { return turned(sides_.high_res(a.x, a.dy).as<T>()); }
  View<const T> low_res(const BackwardArguments& a) const { return turned(sides_.low_res(a.x, a.dy).as<T>()); }

  /// Returns the tensor, with Z and Y swapped if they are swapped in the problem.
  template <class U>
  View<U> turned(View<U> tensor) const {
    if (turned_) {
      std::swap(tensor.shape.extent.z, tensor.shape.extent.y);
      std::swap(tensor.stride[2], tensor.stride[3]);
    }
    return tensor;
  }

  bool shared_;  ///< tiles are those of the other directions; so are their spectra, if they were kept
  bool turned_;  ///< Z and Y are swapped: lines along Z are streamed, and planar kernels have none
  ConvProblem problem_;
  plan::Sides sides_;
  Activation activation_;
  TileGrid grid_;
  fft::TilePlan<T> in_, gradient_, kernel_;
  bool small_channels_;  ///< tiles of x share the lanes
  PhasedChannels rows_;
  WeightSpectra<T> weights_;
  index_t parts_ = 0;                ///< 0 if all tiles go through one stage after the other, in chunks
  index_t chunk_ = 1;                ///< tiles of a chunk of spectra that are computed here, or of a step of a part
  TileSpectra<T> x_, dy_;            ///< layouts of a chunk
  TileSpectra<T> all_x_, all_dy_;    ///< layouts of all tiles, for spectra that other directions have stored
  LaneSpectra<T> lane_spectra_;      ///< of x, if its tiles share lanes
  std::vector<TileColumn> columns_;  ///< of a sample, if there are parts
  TileIoKernels<T> tile_io_ = tile_io_kernels<T>();
  ComplexKernels<T> products_ = complex_kernels<T>();
  TransformMeter& meter_;
};

}  // namespace convolume::conv
