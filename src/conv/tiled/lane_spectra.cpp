#include "conv/tiled/lane_spectra.hpp"

#include <algorithm>

namespace convolume::conv {

template <class T>
LaneSpectra<T>::LaneSpectra(const TileGrid& grid, index_t channels, index_t tiles, bool in_columns)
    : phases_(grid.polyphase.phases()) {
  if (in_columns && grid.tiling.planes > 1) {
    taps_ = grid.polyphase.w_step.z;
    slots_ = taps_ + 3;  // more slots of large planes would not fit into the L2
    phases_ /= taps_;
  }
  terms_ = phases_ * channels;
  layout_ = TileSpectra<T>(grid.tiling.tile, slots_ * terms_, tiles, true);
}

template <class T>
std::vector<TileColumn> LaneSpectra<T>::columns(const TileGrid& grid) const {
  std::vector<TileColumn> all;
  const index_t layers = grid.tiling.count.z;
  if (grid.tiling.planes == 1) {
    for (index_t first = 0; first < grid.per_sample(); first += lanes)
      all.push_back({first, std::min(lanes, grid.per_sample() - first), 1});
    return all;
  }
  for (index_t z = 0; z < layers; z += grid.tiling.planes) {
    for (index_t first = 0; first < grid.layer(); first += lanes) {
      all.push_back(
          {z * grid.layer() + first, std::min(lanes, grid.layer() - first), std::min(grid.tiling.planes, layers - z)});
    }
  }
  return all;
}

template <class T>
void LaneSpectra<T>::transform_phases(const fft::TilePlan<T>& plan, const TileGrid& grid, index_t first, index_t count,
                                      index_t begin, index_t end, const View<const T>& x, T* spectra, T* scratch,
                                      TransformMeter& meter) const {
  const index_t channels = x.shape.c;
  const auto transform = [&] {
    for (index_t i = begin * channels; i < end * channels; ++i) {
      const index_t phase = i / channels, c = i % channels;
      fft::PlainTile<const T> tiles{};
      for (index_t lane = 0; lane < count; ++lane) {
        const index_t tile = first + lane;
        const View<const T> from = grid.x_component(x, tile, phase);
        const Extent3 origin = grid.x_begin(tile, phase);
        const auto at = static_cast<std::size_t>(lane);
        tiles.lanes[at] = from.channel(grid.sample(tile), c) + origin.z * from.stride[2] + origin.y * from.stride[3] +
                          origin.x * from.stride[4];
        tiles.boxes[at] = {Extent3{0, 0, 0} - origin, from.shape.extent - origin};
        tiles.plane_stride = from.stride[2];
        tiles.row_stride = from.stride[3];
        tiles.voxel_stride = from.stride[4];
      }
      plan.forward(tiles, spectra + layout_.offset(0, i), layout_.strides(), scratch);
    }
  };
  meter.measure(Counted::input, transform, (end - begin) * channels);
}

template <class T>
void LaneSpectra<T>::transform(const fft::TilePlan<T>& plan, const TileGrid& grid, index_t first, index_t count,
                               const View<const T>& x, T* spectra, T* scratch, TransformMeter& meter) const {
  transform_phases(plan, grid, first, count, 0, phases_, x, spectra, scratch, meter);
}

template <class T>
T* LaneSpectra<T>::transform(const fft::TilePlan<T>& plan, const TileGrid& grid, const TileColumn& column, index_t n,
                             index_t plane, const View<const T>& x, T* spectra, T* scratch,
                             TransformMeter& meter) const {
  const index_t at = plane % windows(), step = terms_ * layout_.channel_step();
  if (plane > 0 && at == 0) {
    // All planes of the last window except its first plane are the first planes of the next window.
    for (index_t block = 0; block < plan.blocks(); ++block) {
      T* frequency = spectra + layout_.block_offset(block);
      std::copy(frequency + windows() * step, frequency + slots_ * step, frequency);
    }
  }
  T* window = spectra + at * step;
  const index_t first = n * grid.per_sample() + column.first + plane * grid.layer();
  const index_t known = plane > 0 ? taps_ - 1 : 0;
  transform_phases(plan, grid, first, column.count, known * phases_, taps_ * phases_, x, window, scratch, meter);
  return window;
}

template class LaneSpectra<float>;
template class LaneSpectra<double>;

}  // namespace convolume::conv
