// The tiled way in the direction that sums over tiles: dw from x and dy.
#pragma once

#include <utility>

#include "conv/engine.hpp"
#include "conv/tile_ends.hpp"
#include "conv/tiled_layout.hpp"
#include "conv/transform_meter.hpp"

namespace convolume::conv {

/// Transforms of x, and of dy's valid part with zeros behind it; per frequency, products summed over tiles in their
/// order; and one inverse per pair of channels. Rows of the products are input channels, lanes output channels.
/// All tiles go through one stage after the other, a chunk at a time; but where input channels are few, and all sums
/// fit into the L2, parts of the tiles go through all stages and have sums of their own, which are added up in order:
/// spectra of dy then never leave the L2. Immutable and thread-safe.
template <class T>
class TiledWeightGradient {
 public:
  TiledWeightGradient(const ConvProblem& problem, const plan::TiledWay& way, TransformMeter& meter);

  double seconds() const noexcept { return grid_.way.seconds; }
  std::string describe() const;
  Ready append(TaskGraph& graph, const ConvReady& ready, const std::shared_ptr<const BackwardArguments>& a) const;

 private:
  static constexpr index_t lanes = fft::tile_lanes<T>;
  struct Run;  // the memory of one run of a graph

  /// Of tiles that share lanes of x, a range for each part.
  index_t first_of_part(index_t part) const {
    return std::min(grid_.tiles(), (grid_.tiles() + lanes - 1) / lanes * part / parts_ * lanes);
  }
  index_t chunks() const { return (grid_.tiles() + chunk_ - 1) / chunk_; }
  std::size_t scratch_bytes() const { return std::max(stream_bytes(in_), stream_bytes(gradient_)); }
  void transform_x(const BackwardArguments& a, index_t tile, index_t place, T* spectra, T* scratch) const;
  void transform_dy(const BackwardArguments& a, index_t tile, index_t place, T* spectra, T* scratch) const;
  TileSource<T> dy_source(const BackwardArguments& a, index_t tile, index_t channel) const;
  void multiply_block(index_t block, index_t tiles, const T* x, const T* dy, bool add, T* sums) const;
  void sum_products(index_t first_block, index_t last_block, index_t count, const T* x, const T* dy, bool add,
                    T* sums) const;
  void invert(const BackwardArguments& a, index_t channel, index_t count, index_t column, const T* sums) const;

  void sum_part(const BackwardArguments& a, index_t part, T* sums) const;
  void sum_step(const BackwardArguments& a, index_t first, index_t count, const T* x, bool add, T* sums,
                T* scratch) const;
  std::vector<TaskId> append_parts(TaskGraph& graph, const ConvReady& ready,
                                   const std::shared_ptr<const BackwardArguments>& a, const std::shared_ptr<Run>& run,
                                   TaskId memory) const;
  void collect(const ConvReady& ready, index_t tile, bool with_dy, std::vector<TaskId>& after) const;
  std::vector<TaskId> append_chunks(TaskGraph& graph, const ConvReady& ready,
                                    const std::shared_ptr<const BackwardArguments>& a, const std::shared_ptr<Run>& run,
                                    TaskId memory) const;
  std::vector<TaskId> append_transforms(TaskGraph& graph, const ConvReady& ready,
                                        const std::shared_ptr<const BackwardArguments>& a,
                                        const std::shared_ptr<Run>& run, index_t chunk,
                                        const std::vector<TaskId>& after) const;
  std::vector<TaskId> append_products(TaskGraph& graph, const std::shared_ptr<Run>& run, index_t chunk,
                                      const std::vector<TaskId>& transforms, const std::vector<TaskId>& previous) const;
  std::vector<TaskId> append_inverses(TaskGraph& graph, const std::shared_ptr<const BackwardArguments>& a,
                                      const std::shared_ptr<Run>& run, const std::vector<TaskId>& products) const;

  /// The tensor, with Z and Y exchanged where the problem's are.
  template <class U>
  View<U> turned(View<U> tensor) const {
    if (turned_) {
      std::swap(tensor.shape.extent.z, tensor.shape.extent.y);
      std::swap(tensor.stride[2], tensor.stride[3]);
    }
    return tensor;
  }

  bool turned_;  ///< lines along Z are what is read at a stretch: a planar kernel has its rows stand for planes
  ConvProblem problem_;
  TileGrid grid_;
  fft::TilePlan<T> in_, gradient_, kernel_;
  WeightSpectra<T> weights_;
  bool few_;           ///< tiles of x in lanes
  index_t parts_ = 0;  ///< 0: one stage after the other, in chunks
  index_t chunk_ = 1;  ///< tiles of a chunk, or of a step of a part
  TileSpectra<T> x_, dy_;
  TransformMeter& meter_;
};

}  // namespace convolume::conv
