// The tiled way in a direction that yields voxels: y from x, or dx from dy.
#pragma once

#include <algorithm>
#include <functional>
#include <memory_resource>
#include <string>
#include <vector>

#include "conv/tile_ends.hpp"
#include "conv/tiled_layout.hpp"
#include "conv/transform_meter.hpp"
#include "convolume/scheduler.hpp"

namespace convolume::conv {

/// What a group of tiles reads and writes.
template <class T>
struct GroupEnds {
  View<const T> source;
  View<T> target;
  const T* weights = nullptr;  ///< spectra, laid out as TiledVoxels::weights()
  const T* bias = nullptr;
  const Activation* gradient = nullptr;  ///< multiplies the source by its gradient at y
  View<const T> y{};
  Activation activation{};
  bool add = false;
  std::pmr::memory_resource* memory = nullptr;  ///< of the group's spectra
};

/// Sixteen tiles (eight of doubles) at a time, one channel of x after the other: spectra of `count` tiles from `first`
/// on, of whatever lies `offset` from their first voxel.
template <class T>
void transform_tiles_in_lanes(const fft::TilePlan<T>& plan, const TileGrid& grid, const Extent3& offset, index_t first,
                              index_t count, const View<const T>& x, const TileSpectra<T>& layout, T* spectra,
                              T* scratch, TransformMeter& meter);

/// Whether a tensor has so few channels that tiles go into the lanes.
template <class T>
bool tiles_in_lanes(index_t channels, Layout layout) {
  return channels < fft::tile_lanes<T> / 2 && layout == Layout::plain;
}

/// One direction. Immutable and thread-safe.
template <class T>
class TiledVoxels {
 public:
  TiledVoxels(const ConvProblem& problem, plan::Direction direction, const plan::TiledWay& way, TransformMeter& meter);

  const WeightSpectra<T>& weights() const noexcept { return weights_; }
  const Extent3& tile() const noexcept { return grid_.way.tile; }
  double seconds() const noexcept { return grid_.way.seconds; }
  double kernel_flops() const noexcept;  ///< to transform all weights
  std::string describe() const;

  /// Tasks that fill weight spectra from weights; the first calls `spectra`, to take the memory.
  std::vector<TaskId> append_weight_spectra(TaskGraph& graph, std::function<View<const T>()> weights,
                                            std::function<T*()> spectra, std::pmr::memory_resource* memory,
                                            const std::vector<TaskId>& after) const;

  /// Tasks for all groups of tiles; `ends` is asked when one runs. Ready layer by layer.
  Ready append_groups(TaskGraph& graph, const Ready& source, const Ready& target, const std::vector<TaskId>& weights,
                      std::function<GroupEnds<T>()> ends) const;

 private:
  static constexpr index_t lanes = fft::tile_lanes<T>;

  void weight_spectra(const View<const T>& w, index_t term, index_t column, std::pmr::memory_resource* memory,
                      T* spectra) const;
  void run_group(index_t first, index_t count, const GroupEnds<T>& ends) const;
  void transform_group(index_t first, index_t count, const GroupEnds<T>& ends, T* spectra, T* scratch) const;
  void multiply_group(index_t first, index_t count, const T* in, const T* weights, T* out, T* blocks, T* scratch) const;
  void multiply_block(index_t count, const T* spectra, const T* weights, T* products) const;
  void lines_forward(index_t count, const T* from, T* to, T* scratch) const;
  void lines_backward(index_t count, const T* from, T* to, T* scratch) const;
  void invert_group(index_t first, index_t count, const GroupEnds<T>& ends, T* spectra, T* scratch) const;
  bool past_caches(const GroupEnds<T>& ends) const;
  std::size_t scratch_bytes() const {
    return std::max({in_.scratch_bytes(), kernel_.scratch_bytes(), out_.scratch_bytes()});
  }

  TileGrid grid_;
  index_t terms_, results_;  ///< channels of the source, of the target
  bool conjugate_;
  Layout source_layout_, target_layout_;
  Extent3 kernel_extent_;
  fft::TilePlan<T> in_, kernel_, out_;
  WeightSpectra<T> weights_;
  index_t group_;  ///< tiles that are transformed together
  index_t step_;   ///< of these, how many are multiplied and inverted together
  TileSpectra<T> source_, target_;
  Extent3 offset_{}, shift_{0, 0, 0};  ///< of a tile's window in the source, from its first voxel of the domain
  index_t past_caches_bytes_;
  TransformMeter& meter_;
};

}  // namespace convolume::conv
