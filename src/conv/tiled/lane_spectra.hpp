// Computes spectra of x if x has few channels, so that tiles share the lanes.
#pragma once

#include <vector>

#include "conv/spectra/tile_grid.hpp"
#include "conv/spectra/tile_spectra.hpp"
#include "conv/spectra/transform_meter.hpp"
#include "plan/tiled_cost.hpp"

namespace convolume::conv {

/// Returns whether a tensor has so few channels that the lanes of a vector are tiles, not channels.
template <class T>
bool tiles_in_lanes(index_t channels, Layout layout) {
  return layout == Layout::plain && plan::tiles_fill_lanes(channels, data_type_of<T>());
}

/// Tiles [first, first + count) of a sample, and the tiles at the same positions in the next `planes` - 1 layers. A
/// column of tiles is all tiles with the same position along Y and X. If tiles share lanes, `count` is at most the
/// number of lanes.
struct TileColumn {
  index_t first, count, planes;
};

/// Transforms x for 16 tiles (8 of double) at a time, one phase after the other and one channel of x after the other.
///
/// If Z is unrolled into channels (Polyphase), the taps along Z are phases. The plane of x that the first tap reads
/// for one layer of tiles is the plane that the second tap reads for the layer before. So each plane of a column is
/// transformed once. The spectra of the taps are a window that slides over the planes. Immutable and thread-safe.
template <class T>
class LaneSpectra {
 public:
  static constexpr index_t lanes = fft::tile_lanes<T>;

  LaneSpectra() = default;
  /// Makes room for `tiles` tiles together, or, with `in_columns`, for one layer of a column.
  LaneSpectra(const TileGrid& grid, index_t channels, index_t tiles, bool in_columns);

  /// Returns the layout of the spectra. It holds all phases. In columns it holds more planes of x than there are taps.
  const TileSpectra<T>& layout() const noexcept { return layout_; }
  /// Returns the columns that contain all tiles of a sample.
  std::vector<TileColumn> columns(const TileGrid& grid) const;

  /// Computes the spectra of all phases of tiles [first, first + count), which share lanes.
  void transform(const fft::TilePlan<T>& plan, const TileGrid& grid, index_t first, index_t count,
                 const View<const T>& x, T* spectra, T* scratch, TransformMeter& meter) const;
  /// Computes the spectra of layer `plane` of a column of sample n. The earlier layers of the column must have been
  /// computed before, in the same memory. Returns where the spectra begin. From there on they have the layout layout().
  T* transform(const fft::TilePlan<T>& plan, const TileGrid& grid, const TileColumn& column, index_t n, index_t plane,
               const View<const T>& x, T* spectra, T* scratch, TransformMeter& meter) const;

 private:
  void transform_phases(const fft::TilePlan<T>& plan, const TileGrid& grid, index_t first, index_t count, index_t begin,
                        index_t end, const View<const T>& x, T* spectra, T* scratch, TransformMeter& meter) const;
  /// Returns how many windows fit into the memory before planes must be moved.
  index_t windows() const noexcept { return slots_ - taps_ + 1; }

  index_t taps_ = 1;                ///< planes in a window
  index_t slots_ = 1;               ///< planes that the memory holds
  index_t phases_ = 1, terms_ = 1;  ///< phases of a plane; channels of all these phases
  TileSpectra<T> layout_;
};

}  // namespace convolume::conv
