// Where the spectra of tiles, weights and weight gradients lie for the products of one direction.
#pragma once

#include "conv/complex_product.hpp"
#include "fft/tile_plan.hpp"
#include "plan/tiled_cost.hpp"

namespace convolume::conv {

/// Tiles of one side, [frequency block][tile][kz][re, im][channel]; or, where channels are few, 16 tiles (8 doubles) at
/// a time, [frequency block][tile group][channel][kz][re, im][tile]: no lane is idle then.
template <class T>
class TileSpectra {
 public:
  static constexpr index_t lanes = fft::tile_lanes<T>;

  TileSpectra() = default;
  TileSpectra(const Extent3& tile, index_t channels, index_t tiles, bool tiles_in_lanes)
      : z_(tile.z), blocks_(tile.y * (tile.x / 2 + 1)), in_lanes_(tiles_in_lanes) {
    // A cache line more: tiles a power of two apart would meet in few sets of the caches.
    if (in_lanes_) {
      channel_ = z_ * 2 * lanes;
      tile_ = channels * channel_ + lanes;
      block_ = (tiles + lanes - 1) / lanes * tile_;
    } else {
      width_ = (channels + lanes - 1) / lanes * lanes;
      tile_ = z_ * 2 * width_ + lanes;
      block_ = tiles * tile_;
    }
  }

  index_t elements() const noexcept { return blocks_ * block_; }
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
  index_t frequency_step() const noexcept { return 2 * im(); }

 private:
  index_t z_ = 1, blocks_ = 0;
  bool in_lanes_ = false;
  index_t width_ = 0, channel_ = 0, tile_ = 0, block_ = 0;
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

/// The tiles of one direction, numbered (sample, z, y, x), and their transforms.
struct TileGrid {
  plan::TiledWay way{};
  index_t batch = 1;

  index_t per_sample() const { return way.count.z * way.count.y * way.count.x; }
  index_t tiles() const { return batch * per_sample(); }
  index_t sample(index_t tile) const { return tile / per_sample(); }
  /// First voxel of a tile's valid part, in the domain that is covered.
  Extent3 begin(index_t tile) const {
    const index_t i = tile % per_sample();
    return Extent3{i / (way.count.y * way.count.x), i / way.count.x % way.count.y, i % way.count.x} * way.valid;
  }
};

}  // namespace convolume::conv
