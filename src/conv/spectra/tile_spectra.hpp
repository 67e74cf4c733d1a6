// Memory layouts of the spectra of tiles, weights and weight gradients for the products of one direction.
#pragma once

#include "conv/spectra/complex_product.hpp"
#include "fft/tile_plan.hpp"

namespace convolume::conv {

/// Layout of the tiles of one side: [frequency block][tile][kz][re, im][channel]. If there are few channels, 16 tiles
/// (8 of double) share the lanes: [frequency block][tile group][channel][kz][re, im][tile]. So no lane is idle. If
/// tiles are planes, each frequency block is a single frequency, and all frequency blocks of a tile (or tile group) lie
/// side by side.
template <class T>
class TileSpectra {
 public:
  static constexpr index_t lanes = fft::tile_lanes<T>;

  TileSpectra() = default;
  TileSpectra(const Extent3& tile, index_t channels, index_t tiles, bool tiles_in_lanes)
      : z_(tile.z), blocks_(tile.y * (tile.x / 2 + 1)), in_lanes_(tiles_in_lanes) {
    // Adds one cache line between tiles. Tiles whose distance is a power of two would share few sets of the caches.
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
  /// Returns the elements from one frequency block to the next. In between lies this block of all tiles. If tiles are
  /// planes, it is the block of one tile only.
  index_t block_elements() const noexcept { return block_; }
  /// Returns whether spectra in the layout `other` have the same places as spectra in this layout.
  bool lies_as(const TileSpectra& other) const noexcept {
    return !in_lanes_ && !other.in_lanes_ && width_ == other.width_ && block_ == other.block_;
  }
  bool tiles_in_lanes() const noexcept { return in_lanes_; }

  /// Returns the strides for one channel block of one tile, or for one channel of one tile group.
  fft::TileStrides strides() const noexcept {
    const index_t width = in_lanes_ ? lanes : width_;
    return {.block = block_, .frequency = 2 * width, .tile = tile_, .channel_block = lanes, .re_im = width};
  }
  /// Returns where the spectrum of a tile begins, for the channels from `channel` on. If tiles share lanes, `tile`
  /// counts tile groups.
  index_t offset(index_t tile, index_t channel) const noexcept {
    return tile * tile_ + (in_lanes_ ? channel * channel_ : channel);
  }
  index_t block_offset(index_t block) const noexcept { return block * block_; }

  /// Return the steps in elements between tiles, between channels, and between real and imaginary part.
  index_t tile_step() const noexcept { return in_lanes_ ? 1 : tile_; }
  index_t channel_step() const noexcept { return in_lanes_ ? channel_ : 1; }
  index_t im() const noexcept { return in_lanes_ ? lanes : width_; }
  /// Returns the step between two frequencies that are multiplied together: from kz to kz + 1, or, if tiles are planes,
  /// from one frequency block to the next.
  index_t frequency_step() const noexcept { return z_ == 1 ? block_ : 2 * im(); }

 private:
  index_t z_ = 1, blocks_ = 0;
  bool in_lanes_ = false;
  index_t width_ = 0, channel_ = 0, tile_ = 0, block_ = 0, elements_ = 0;
};

/// Layout of spectra that relate every channel of one side to a block of lanes of the other side: [frequency
/// block][kz][lane block][channel][re, im][lane].
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

/// Channels of one side of a product. If channels are lanes, the channels of every phase begin at a channel block.
struct PhasedChannels {
  index_t phases = 1, channels = 1;  ///< channels of each phase
  index_t step = 1;                  ///< from one phase to the next, in channels

  index_t all() const noexcept { return (phases - 1) * step + channels; }
  bool contiguous() const noexcept { return phases == 1 || step == channels; }
};
template <class T>
PhasedChannels phased_channels(index_t phases, index_t channels, bool in_blocks) {
  constexpr index_t lanes = fft::tile_lanes<T>;
  return {phases, channels, in_blocks ? (channels + lanes - 1) / lanes * lanes : channels};
}

}  // namespace convolume::conv
