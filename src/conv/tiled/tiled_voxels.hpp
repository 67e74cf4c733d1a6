// Computes a direction of fft_tiled that yields voxels: y from x, or dx from dy.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory_resource>
#include <string>
#include <vector>

#include "conv/engine.hpp"
#include "conv/spectra/tile_grid.hpp"
#include "conv/spectra/tile_spectra.hpp"
#include "conv/spectra/transform_meter.hpp"
#include "conv/tensor_io/group_tensors.hpp"
#include "conv/tensor_io/tile_io.hpp"
#include "conv/tiled/lane_spectra.hpp"
#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "plan/overlap_order.hpp"

namespace convolume::conv {

/// A group of tiles. `before` has the indices of the groups that must finish first, because they write to the same
/// voxels.
struct TileGroup : TileColumn {
  std::vector<std::size_t> before;
};

/// One direction of fft_tiled. `problem` is the convolution of plan::Sides, so it is not transposed, and `direction` is
/// a direction of this convolution. Immutable and thread-safe.
template <class T>
class TiledVoxels {
 public:
  /// `counted` names the counter for transforms of the source. `differentiated` is true if groups may multiply the
  /// source by an activation's gradient.
  TiledVoxels(const ConvProblem& problem, plan::Direction direction, const plan::Tiling& tiling, Counted counted,
              bool differentiated, TransformMeter& meter);

  const WeightSpectra<T>& weights() const noexcept { return weights_; }
  /// Returns the layout of the spectra of all tiles of the source.
  const TileSpectra<T>& kept() const noexcept { return kept_; }
  const Extent3& tile() const noexcept { return grid_.tiling.tile; }
  double kernel_flops() const noexcept;  ///< operations that transform all weights
  double source_flops() const noexcept;  ///< operations that transform one tile of the source
  std::string describe() const;

  /// Appends tasks that compute weight spectra from weights. `spectra` returns the memory for the results. A first task
  /// calls it alone, because the first call may allocate.
  std::vector<TaskId> append_weight_spectra(TaskGraph& graph, std::function<View<const T>()> weights,
                                            std::function<T*()> spectra, std::pmr::memory_resource* memory,
                                            const std::vector<TaskId>& after) const;

  /// Appends a task for each group of tiles. A task calls `tensors` when it runs. The result becomes ready layer by
  /// layer.
  Ready append_groups(TaskGraph& graph, const Ready& source, const Ready& target, const std::vector<TaskId>& weights,
                      std::function<GroupTensors<T>()> tensors) const;

 private:
  static constexpr index_t lanes = fft::tile_lanes<T>;

  /// Return the polyphase components that a tile reads and writes, and the first voxels of the tile in them.
  template <class U>
  View<U> source_component(const View<U>& source, index_t tile, index_t phase) const {
    return conjugate_ ? grid_.x_component(source, tile, phase) : grid_.y_component(source, tile);
  }
  View<T> target_component(const View<T>& target, index_t tile, index_t phase) const {
    return conjugate_ ? grid_.y_component(target, tile) : grid_.x_component(target, tile, phase);
  }
  Extent3 source_begin(index_t tile, index_t phase) const {
    if (conjugate_) return grid_.x_begin(tile, phase);
    return grid_.tiling.overlap_add ? grid_.begin(tile) : grid_.y_begin(tile);
  }
  Extent3 target_begin(index_t tile, index_t phase) const {
    if (conjugate_) return grid_.begin(tile);
    return grid_.tiling.overlap_add ? grid_.x_begin(tile, phase) : grid_.x_target(tile, phase);
  }
  /// Returns the planes [begin, end) of the target that the tiles of layers [first, last] write.
  std::array<index_t, 2> written_planes(index_t first, index_t last) const;

  void weight_spectra(const View<const T>& w, index_t term, index_t column, std::pmr::memory_resource* memory,
                      T* spectra) const;
  void run_group(index_t n, const TileGroup& group, const GroupTensors<T>& tensors) const;
  void transform_group(index_t first, index_t count, const GroupTensors<T>& tensors, T* spectra, T* scratch) const;
  void transform_phase(index_t tile, const TileRow& row, index_t phase, const GroupTensors<T>& tensors, T* spectra,
                       T* scratch) const;
  void multiply_group(index_t first, index_t begin, index_t count, const GroupTensors<T>& tensors, const T* in, T* out,
                      T* blocks, T* scratch) const;
  void multiply_planes(index_t first, index_t begin, index_t count, const GroupTensors<T>& tensors, const T* in,
                       T* out) const;
  void multiply_block(index_t count, const T* spectra, const T* weights, T* products) const;
  void multiply_phases(index_t count, index_t phases, const T* spectra, const T* weights, bool add, T* products) const;
  void lines_forward(index_t count, const T* from, T* to, T* scratch) const;
  void lines_backward(index_t count, const T* from, T* to, T* scratch) const;
  void invert_group(index_t first, index_t count, const GroupTensors<T>& tensors, T* spectra, T* scratch) const;
  void make_groups(bool in_lanes);
  void make_overlapping_groups();
  fft::TileBox fresh_part(index_t tile) const;
  std::size_t scratch_bytes() const {
    return std::max({in_.scratch_bytes(), kernel_.scratch_bytes(), out_.scratch_bytes()});
  }
  /// Returns the scratch of the transforms of a group.
  std::size_t row_scratch_bytes() const {
    const index_t most = std::min(group_, grid_.tiling.count.x);
    const bool in_lanes = source_.tiles_in_lanes();
    const TileRow in = in_lanes ? TileRow{} : row_of(grid_, 0, most, source_layout_, 0),
                  out = row_of(grid_, 0, most, target_layout_, 0);
    return scratch_bytes() + std::max(row_bytes(in_, in, true), row_bytes(out_, out, false));
  }
  static std::size_t bytes_of(index_t elements) { return static_cast<std::size_t>(elements) * sizeof(T); }
  bool in_place() const { return source_.lies_as(target_) && !grid_.planar(); }
  std::size_t block_bytes() const { return bytes_of(source_.block_elements() + target_.block_elements()); }
  /// Returns the scratch of run_group().
  std::size_t group_scratch_bytes() const {
    return bytes_of(source_.elements()) + (in_place() ? 0 : bytes_of(target_.elements())) + block_bytes() +
           row_scratch_bytes() + 256;
  }

  TileGrid grid_;
  bool conjugate_;
  PhasedChannels terms_, results_;  ///< channels of the source, and of the target
  Layout source_layout_, target_layout_;
  fft::TilePlan<T> in_, kernel_, out_;
  WeightSpectra<T> weights_;
  /// Whether weight spectra are written with non-temporal stores: those of more than a quarter of the L2. With ordinary
  /// stores, larger ones gain on one thread only (docs/performance/log/tiled.md).
  bool streams_weights_ = true;
  index_t group_;  ///< tiles that are transformed together
  index_t step_;   ///< tiles of a group that are multiplied and inverted together
  TileSpectra<T> source_, target_, kept_;
  LaneSpectra<T> lane_spectra_;    ///< transforms the source if its tiles share lanes
  std::vector<TileGroup> groups_;  ///< groups of a sample, in the order of their tasks
  plan::OverlapOrder order_;       ///< order of tiles, if their results overlap
  Extent3 window_, written_;       ///< voxels that a tile reads and writes
  Extent3 shift_{0, 0, 0};         ///< shift of a tile's window in the source
  Extent3 target_extent_;
  index_t non_temporal_from_;  ///< bytes of a target from which its stores are non-temporal
  Counted counted_;
  TileIoKernels<T> tile_io_ = tile_io_kernels<T>();
  ComplexKernels<T> products_ = complex_kernels<T>();
  TransformMeter& meter_;
};

}  // namespace convolume::conv
