// Spectra of few channels of x, where tiles share the lanes.
#pragma once

#include <vector>

#include "conv/spectra/tile_grid.hpp"
#include "conv/spectra/tile_spectra.hpp"
#include "conv/spectra/transform_meter.hpp"

namespace convolume::conv {

/// Whether a tensor has so few channels that tiles go into the lanes.
template <class T>
bool tiles_in_lanes(index_t channels, Layout layout) {
  return channels < fft::tile_lanes<T> / 2 && layout == Layout::plain;
}

/// Tiles [first, first + count) of a sample, and those that lie behind them in `planes` - 1 further layers of tiles. At
/// most as many of a layer as there are lanes, where they share these.
struct TileColumn {
  index_t first, count, planes;
};

/// Sixteen tiles (eight of doubles) at a time, phase by phase, one channel of x after the other. Where taps along Z are
/// phases (Lattices), a plane of x is what the first tap reads for one layer of tiles, and the second one for the layer
/// before: going through a column, each plane is transformed once, and the taps' spectra are a window that slides over
/// the planes. Immutable and thread-safe.
template <class T>
class LaneSpectra {
 public:
  static constexpr index_t lanes = fft::tile_lanes<T>;

  LaneSpectra() = default;
  /// Room for `tiles` together, or, `in_columns`, of one layer of a column.
  LaneSpectra(const TileGrid& grid, index_t channels, index_t tiles, bool in_columns);

  /// Where spectra lie: all phases, or, in columns, more planes of x than there are taps.
  const TileSpectra<T>& layout() const noexcept { return layout_; }
  /// All tiles of a sample.
  std::vector<TileColumn> columns(const TileGrid& grid) const;

  /// Spectra of all phases of tiles [first, first + count), which share lanes.
  void transform(const fft::TilePlan<T>& plan, const TileGrid& grid, index_t first, index_t count,
                 const View<const T>& x, T* spectra, T* scratch, TransformMeter& meter) const;
  /// Those of layer `plane` of a column of sample n, whose earlier layers came before on the same memory. Returns where
  /// they begin; from there on they lie as layout() says.
  T* transform(const fft::TilePlan<T>& plan, const TileGrid& grid, const TileColumn& column, index_t n, index_t plane,
               const View<const T>& x, T* spectra, T* scratch, TransformMeter& meter) const;

 private:
  void transform_phases(const fft::TilePlan<T>& plan, const TileGrid& grid, index_t first, index_t count, index_t begin,
                        index_t end, const View<const T>& x, T* spectra, T* scratch, TransformMeter& meter) const;
  /// Windows that there is room for before planes have to move.
  index_t windows() const noexcept { return slots_ - taps_ + 1; }

  index_t taps_ = 1;                ///< planes in a window
  index_t slots_ = 1;               ///< planes that there is room for
  index_t phases_ = 1, terms_ = 1;  ///< of a plane; channels of all of these
  TileSpectra<T> layout_;
};

}  // namespace convolume::conv
