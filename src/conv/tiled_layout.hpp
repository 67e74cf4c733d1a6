// Where the spectra of tiles, weights and weight gradients lie for the products of one direction.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "conv/complex_product.hpp"
#include "convolume/scheduler.hpp"
#include "fft/tile_plan.hpp"
#include "plan/tiled_cost.hpp"

namespace convolume::conv {

/// Tiles of one side, [frequency block][tile][kz][re, im][channel]; or, where channels are few, 16 tiles (8 doubles) at
/// a time, [frequency block][tile group][channel][kz][re, im][tile]: no lane is idle then. Planes, whose blocks are
/// single frequencies, have all blocks of a tile (or group) side by side.
template <class T>
class TileSpectra {
 public:
  static constexpr index_t lanes = fft::tile_lanes<T>;

  TileSpectra() = default;
  TileSpectra(const Extent3& tile, index_t channels, index_t tiles, bool tiles_in_lanes)
      : z_(tile.z), blocks_(tile.y * (tile.x / 2 + 1)), in_lanes_(tiles_in_lanes) {
    // A cache line more: tiles a power of two apart would meet in few sets of the caches.
    width_ = (channels + lanes - 1) / lanes * lanes;
    channel_ = z_ * 2 * lanes;
    const index_t all = in_lanes_ ? (tiles + lanes - 1) / lanes : tiles;
    const index_t once = in_lanes_ ? channels * channel_ : z_ * 2 * width_;
    const bool planes = z_ == 1;
    block_ = planes ? once : all * (once + lanes);
    tile_ = planes ? blocks_ * once + lanes : once + lanes;
    elements_ = planes ? all * tile_ : blocks_ * block_;
  }

  index_t elements() const noexcept { return elements_; }
  /// From one frequency block to the next; all tiles of a block, but for planes.
  index_t block_elements() const noexcept { return block_; }
  /// Whether the spectra of `other` lie where these do.
  bool lies_as(const TileSpectra& other) const noexcept {
    return !in_lanes_ && !other.in_lanes_ && width_ == other.width_ && block_ == other.block_;
  }
  bool tiles_in_lanes() const noexcept { return in_lanes_; }

  /// For one channel block of one tile, or one channel of one group of tiles.
  fft::TileStrides strides() const noexcept {
    const index_t width = in_lanes_ ? lanes : width_;
    return {.block = block_, .frequency = 2 * width, .tile = tile_, .channel_block = lanes, .re_im = width};
  }
  /// Where the spectrum of a tile's channels from `channel` on begins (`tile` counts groups where tiles are lanes).
  index_t offset(index_t tile, index_t channel) const noexcept {
    return tile * tile_ + (in_lanes_ ? channel * channel_ : channel);
  }
  index_t block_offset(index_t block) const noexcept { return block * block_; }

  /// Steps between tiles, channels, real and imaginary part, and kz.
  index_t tile_step() const noexcept { return in_lanes_ ? 1 : tile_; }
  index_t channel_step() const noexcept { return in_lanes_ ? channel_ : 1; }
  index_t im() const noexcept { return in_lanes_ ? lanes : width_; }
  /// From one frequency to the next that is multiplied with it: to kz + 1, or, of planes, to the next block.
  index_t frequency_step() const noexcept { return z_ == 1 ? block_ : 2 * im(); }

 private:
  index_t z_ = 1, blocks_ = 0;
  bool in_lanes_ = false;
  index_t width_ = 0, channel_ = 0, tile_ = 0, block_ = 0, elements_ = 0;
};

/// Spectra that relate every channel of one side to a block of lanes of the other:
/// [frequency block][kz][lane block][channel][re, im][lane].
template <class T>
class WeightSpectra {
 public:
  static constexpr index_t lanes = fft::tile_lanes<T>;

  WeightSpectra() = default;
  WeightSpectra(const Extent3& tile, index_t channels, index_t lane_channels)
      : z_(tile.z),
        blocks_(tile.y * (tile.x / 2 + 1)),
        channels_(channels),
        columns_((lane_channels + lanes - 1) / lanes),
        frequency_(channels * columns_ * 2 * lanes + 2 * lanes) {}

  index_t elements() const noexcept { return blocks_ * z_ * frequency_; }
  index_t channels() const noexcept { return channels_; }
  index_t columns() const noexcept { return columns_; }
  fft::TileStrides strides() const noexcept {
    return {.block = z_ * frequency_, .frequency = frequency_, .tile = 0, .channel_block = 0, .re_im = lanes};
  }
  index_t offset(index_t channel, index_t column) const noexcept { return (column * channels_ + channel) * 2 * lanes; }
  index_t block_offset(index_t block) const noexcept { return block * z_ * frequency_; }
  index_t channel_step() const noexcept { return 2 * lanes; }
  index_t column_step() const noexcept { return channels_ * 2 * lanes; }
  index_t frequency_step() const noexcept { return frequency_; }

 private:
  index_t z_ = 1, blocks_ = 0, channels_ = 0, columns_ = 0, frequency_ = 0;
};

/// Channels of one side of a product: those of every phase begin at a channel block where channels are lanes.
struct PhasedChannels {
  index_t phases = 1, channels = 1;  ///< channels of each phase
  index_t step = 1;                  ///< between phases

  index_t all() const noexcept { return (phases - 1) * step + channels; }
  bool contiguous() const noexcept { return phases == 1 || step == channels; }
};
template <class T>
PhasedChannels phased_channels(index_t phases, index_t channels, bool in_blocks) {
  constexpr index_t lanes = fft::tile_lanes<T>;
  return {phases, channels, in_blocks ? (channels + lanes - 1) / lanes * lanes : channels};
}

/// The tiles of one direction, numbered (sample, z, y, x, lattice of y), and their transforms.
struct TileGrid {
  plan::TiledWay way{};
  index_t batch = 1;
  plan::Lattices lattices{};

  /// What plans say of lattices, where there are several.
  std::string describe() const {
    if (lattices.residues() * lattices.phases() == 1) return {};
    const std::string layers = way.planes > 1 ? fmt::format(", {} layers together", way.planes) : "";
    return fmt::format(", {} lattices of y, {} phases of x{}", lattices.residues(), lattices.phases(), layers);
  }
  /// Of planes all frequencies are multiplied together: without lines along Z, blocks are single frequencies.
  bool planar() const { return way.tile.z == 1; }
  index_t layer() const { return way.count.y * way.count.x * lattices.residues(); }
  index_t per_sample() const { return way.count.z * layer(); }
  index_t tiles() const { return batch * per_sample(); }
  index_t sample(index_t tile) const { return tile / per_sample(); }
  /// The lattice of y that a tile covers a part of.
  Extent3 residue(index_t tile) const { return lattices.residue(tile % lattices.residues()); }
  /// First voxel of a tile's valid part, in the domain that is covered.
  Extent3 begin(index_t tile) const { return place(tile) * way.valid; }
  /// Where it stands among the tiles of its lattice.
  Extent3 place(index_t tile) const {
    const index_t i = tile % per_sample() / lattices.residues();
    return {i / (way.count.y * way.count.x), i / way.count.x % way.count.y, i % way.count.x};
  }

  /// Of a tile's lattices. A view of the whole tensor becomes one of the lattice; `phase` counts them.
  template <class T>
  View<T> y_lattice(const View<T>& y, index_t tile) const {
    return lattice(y, residue(tile), lattices.y_step);
  }
  template <class T>
  View<T> x_lattice(const View<T>& x, index_t tile, index_t phase) const {
    return lattice(x, lattices.x_first(residue(tile), lattices.phase(phase)), lattices.x_step);
  }
  template <class T>
  View<T> w_lattice(const View<T>& w, index_t phase) const {
    return lattice(w, lattices.phase(phase), lattices.w_step);
  }
  /// Voxel of x's lattice that the first voxel of a tile of y (first = begin(tile)) meets.
  Extent3 x_begin(index_t tile, index_t phase) const {
    return begin(tile) + lattices.x_shift(residue(tile), lattices.phase(phase));
  }
  /// Voxel of x's lattice that voxel begin(tile) of the domain is, where that is x's.
  Extent3 x_target(index_t tile, index_t phase) const { return x_begin(tile, phase) + lattices.dense.pad_before; }

  /// Where the source of a tile of x begins on y's lattice.
  Extent3 y_begin(index_t tile) const { return begin(tile) + lattices.dense.pad_before - margin(); }
  Extent3 margin() const { return lattices.dense.kernel - Extent3::all(1); }

  /// What planes [begin, end) of y on all lattices are, and what x they meet; `ready` tells who completes that.
  void collect_y(const Ready& ready, index_t n, index_t c0, index_t c1, index_t begin, index_t end,
                 std::vector<TaskId>& after) const {
    const index_t step = lattices.y_step.z;
    ready.collect(n, c0, c1, std::max<index_t>(0, begin * step), std::max<index_t>(1, end * step), after);
  }
  void collect_x(const Ready& ready, index_t n, index_t c0, index_t c1, index_t begin, index_t end,
                 std::vector<TaskId>& after) const {
    const index_t step = lattices.x_step.z, pad = lattices.dense.pad_before.z, range = lattices.shift_range.z;
    ready.collect(n, c0, c1, std::max<index_t>(0, (begin - pad - range) * step),
                  std::max<index_t>(1, (end - pad) * step), after);
  }
  /// What tiles whose valid planes are [begin, end) of the domain read, and what they write.
  void collect_source(bool domain_is_y, const Ready& ready, index_t n, index_t c0, index_t c1, index_t begin,
                      index_t end, std::vector<TaskId>& after) const {
    const index_t behind = end + way.tile.z - way.valid.z, offset = lattices.dense.pad_before.z - margin().z;
    if (way.overlap_add) return collect_y(ready, n, c0, c1, begin, end, after);
    if (domain_is_y) return collect_x(ready, n, c0, c1, begin, behind, after);
    collect_y(ready, n, c0, c1, begin + offset, behind + offset, after);
  }
  void collect_target(bool domain_is_y, const Ready& ready, index_t n, index_t c0, index_t c1, index_t begin,
                      index_t end, std::vector<TaskId>& after) const {
    const index_t pad = lattices.dense.pad_before.z;
    if (domain_is_y) return collect_y(ready, n, c0, c1, begin, end, after);
    collect_x(ready, n, c0, c1, begin + pad, end + pad, after);
  }
  /// Planes of the domain's tensor in one layer of tiles, and the first such slab that a layer writes to. Lattices of x
  /// begin at different planes: a share of them lies in slabs before.
  index_t slab_planes(bool domain_is_y) const {
    return way.valid.z * (domain_is_y ? lattices.y_step.z : lattices.x_step.z);
  }
  index_t first_slab(bool domain_is_y, index_t layer) const {
    return std::max<index_t>(0, layer * way.valid.z - (domain_is_y ? 0 : lattices.shift_range.z)) / way.valid.z;
  }

 private:
  /// Every step-th voxel from `first` on; none where that lies outside.
  template <class T>
  static View<T> lattice(View<T> tensor, const Extent3& first, const Extent3& step) {
    for (int axis = 0; axis < 3; ++axis) {
      index_t& stride = tensor.stride[static_cast<std::size_t>(axis + 2)];
      tensor.data += first[axis] * stride;
      stride *= step[axis];
      index_t& extent = tensor.shape.extent[axis];
      extent = std::max<index_t>(0, (extent - first[axis] + step[axis] - 1) / step[axis]);
    }
    return tensor;
  }
};

}  // namespace convolume::conv
