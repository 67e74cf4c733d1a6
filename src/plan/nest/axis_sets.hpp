// Sets of positions along one axis of a tensor, which a range of iterations touches.
#pragma once

#include <vector>

#include "convolume/nest.hpp"

namespace convolume::plan {

/// Positions from begin to before end.
struct Range {
  index_t begin = 0, end = 0;
  index_t size() const noexcept { return end > begin ? end - begin : 0; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// Counts of one set, or their sums over several sets. With them, the stretches of neighbouring addresses in a product
/// of such sets are counted: an element begins a stretch unless its predecessor is in the product too.
struct AxisCounts {
  double size = 0;
  double adjacent = 0;  ///< positions whose predecessor is in the set
  double wraps = 0;     ///< 1 if the first and the last position of the axis are in the set

  AxisCounts& operator+=(const AxisCounts& more) noexcept {
    size += more.size;
    adjacent += more.adjacent;
    wraps += more.wraps;
    return *this;
  }
};

/// The same for channels, which the blocked layout cuts into blocks.
struct ChannelCounts {
  AxisCounts channels{};
  double blocks = 0;  ///< that hold a channel of the set
  double full = 0;    ///< blocks all of whose channels are in the set
  double joins = 0;   ///< blocks whose predecessor holds a channel of the set too

  ChannelCounts& operator+=(const ChannelCounts& more) noexcept {
    channels += more.channels;
    blocks += more.blocks;
    full += more.full;
    joins += more.joins;
    return *this;
  }
};

/// Returns the positions along `axis` of the windowed operand, inside of the tensor, in rising order. Ranges are
/// disjoint, do not touch, and are not empty.
std::vector<Range> windowed_set(const NestSpace& space, int axis, const Range& results, const Range& taps);
/// Returns the same positions under other numbers, so that they form few ranges if results are more than one voxel
/// apart: positions with the same remainder by that distance are neighbours. The numbers depend on the axis alone.
std::vector<Range> windowed_phases(const NestSpace& space, int axis, const Range& results, const Range& taps);
/// Returns the counts of windowed_set().
AxisCounts windowed_counts(const NestSpace& space, int axis, const Range& results, const Range& taps);

/// Returns the counts of positions i * step + first for i in a range, on an axis of `extent` positions.
AxisCounts strided_counts(const Range& range, index_t step, index_t first, index_t extent);

/// Returns the counts of a range of channels. `all` is the number of channels of a group, `block` that of a block, and
/// `groups` tells whether the tensor has further channels behind.
ChannelCounts channel_counts(const Range& range, index_t all, index_t block, index_t groups);

}  // namespace convolume::plan
