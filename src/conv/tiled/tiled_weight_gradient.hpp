// The tiled way in the direction that sums over tiles: dw from x and dy.
#pragma once

#include <optional>
#include <utility>

#include "conv/caches/buffer_store.hpp"
#include "conv/caches/run_buffers.hpp"
#include "conv/engine.hpp"
#include "conv/spectra/tile_grid.hpp"
#include "conv/spectra/tile_spectra.hpp"
#include "conv/spectra/transform_meter.hpp"
#include "conv/tensor_io/tile_ends.hpp"
#include "conv/tiled/lane_spectra.hpp"

namespace convolume::conv {

/// Spectra of all tiles that the forward pass (of x) and backward data (of dy) leave, and when they are complete.
struct SharedSpectra {
  bool x = false;  ///< in what is bound as x_hat
  std::shared_ptr<BufferStore> dy;
  std::optional<RunBuffers> dy_buffers{};  ///< of `dy`; the weights' gradient ends them
  std::vector<TaskId> ready;
};

/// Transforms of x, and of dy's valid part with zeros behind it; per frequency, products summed over tiles in their
/// order; and one inverse per pair of channels. Rows of the products are input channels, lanes output channels.
/// Where the tiles are those of the other directions, their spectra are read and all tiles are one chunk. Else all
/// tiles go through one stage after the other, a chunk at a time; but where input channels are few, and all sums
/// fit into the L2, parts of the tiles go through all stages and have sums of their own, which are added up in order:
/// spectra of dy then never leave the L2. Of a transposed problem x and dy change places: `problem` is its
/// untransposed(), and the activation's gradient belongs to what stands for x. Immutable and thread-safe.
template <class T>
class TiledWeightGradient {
 public:
  TiledWeightGradient(const ConvProblem& problem, bool transposed, const Activation& activation,
                      const plan::TiledWays& ways, TransformMeter& meter);

  std::string describe() const;
  /// Computes the spectra that are not there; others can be where ways.shared.
  Ready append(TaskGraph& graph, const ConvReady& ready, const std::shared_ptr<const BackwardArguments>& a,
               const SharedSpectra& shared) const;

 private:
  static constexpr index_t lanes = fft::tile_lanes<T>;
  struct Run;  // the memory of one run of a graph

  /// Columns of tiles that share lanes of x, of all samples: a range for each part.
  index_t first_column(index_t part) const {
    return problem_.batch * static_cast<index_t>(columns_.size()) * part / parts_;
  }
  index_t sample(index_t column) const { return column / static_cast<index_t>(columns_.size()); }
  const TileColumn& column(index_t i) const { return columns_[static_cast<std::size_t>(i) % columns_.size()]; }
  index_t first_tile(index_t i) const { return sample(i) * grid_.per_sample() + column(i).first; }
  index_t chunks() const { return (grid_.tiles() + chunk_ - 1) / chunk_; }
  std::size_t scratch_bytes() const { return std::max(in_.scratch_bytes(), gradient_.scratch_bytes()); }
  static std::size_t bytes_of(index_t elements) { return static_cast<std::size_t>(elements) * sizeof(T); }
  std::size_t tile_scratch_bytes() const;
  /// Of sum_step().
  std::size_t step_scratch_bytes() const { return scratch_bytes() + bytes_of(dy_.elements() + dy_.block_elements()); }
  /// Of sum_part().
  std::size_t part_scratch_bytes() const { return bytes_of(x_.elements()) + step_scratch_bytes() + 128; }
  /// Of invert(), for so many channels.
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
  void sum_products(index_t first_block, index_t last_block, index_t count, const T* x, const T* dy, bool add,
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
  Counted x_counted() const { return transposed_ ? Counted::gradient : Counted::input; }
  Counted dy_counted() const { return transposed_ ? Counted::input : Counted::gradient; }
  /// What stands for x, and for dy.
  View<const T> fine(const BackwardArguments& a) const { return turned((transposed_ ? a.dy : a.x).as<T>()); }
  View<const T> coarse(const BackwardArguments& a) const { return turned((transposed_ ? a.x : a.dy).as<T>()); }

  /// The tensor, with Z and Y exchanged where the problem's are.
  template <class U>
  View<U> turned(View<U> tensor) const {
    if (turned_) {
      std::swap(tensor.shape.extent.z, tensor.shape.extent.y);
      std::swap(tensor.stride[2], tensor.stride[3]);
    }
    return tensor;
  }

  bool shared_;  ///< tiles, and spectra where they are there, are those of the other directions
  bool turned_;  ///< lines along Z are what is read at a stretch: a planar kernel has its rows stand for planes
  ConvProblem problem_;
  bool transposed_;
  Activation activation_;
  TileGrid grid_;
  fft::TilePlan<T> in_, gradient_, kernel_;
  bool few_;  ///< tiles of x in lanes
  PhasedChannels rows_;
  WeightSpectra<T> weights_;
  index_t parts_ = 0;  ///< 0: one stage after the other, in chunks
  index_t chunk_ = 1;  ///< tiles of a chunk, or of a step of a part
  TileSpectra<T> x_, dy_;
  LaneSpectra<T> lane_spectra_;      ///< of x, where its tiles share lanes
  std::vector<TileColumn> columns_;  ///< of a sample, where parts go through them
  TransformMeter& meter_;
};

}  // namespace convolume::conv
