#include "plan/nest/axis_sets.hpp"

#include <algorithm>
#include <cstdlib>

namespace convolume::plan {
namespace {

/// The positions start + i * step for i < count; step is positive.
struct Progression {
  index_t start, count, step;
};

/// The positions of all results for the first tap, and the distances of the taps.
struct Window {
  Window(const NestSpace& space, int axis, const Range& results, const Range& taps)
      : results{.start = results.begin * space.result_step[axis] - space.offset[axis],
                .count = results.size(),
                .step = space.result_step[axis]},
        taps{.start = taps.begin * space.tap_step[axis], .count = taps.size(), .step = std::abs(space.tap_step[axis])} {
    if (space.tap_step[axis] < 0) this->taps.start = (taps.end - 1) * space.tap_step[axis];
  }
  bool empty() const { return results.count == 0 || taps.count == 0; }
  Range span() const {
    const index_t first = results.start + taps.start;
    return {first, first + (results.count - 1) * results.step + (taps.count - 1) * taps.step + 1};
  }
  /// Returns whether the positions have no gaps.
  bool is_range() const {
    const auto covers = [](const Progression& inner, const Progression& outer) {
      return (inner.step == 1 || inner.count == 1) && (outer.count == 1 || outer.step <= inner.count);
    };
    return covers(results, taps) || covers(taps, results);
  }

  Progression results, taps;
};

Range clipped(const Range& range, index_t extent) {
  return {std::max<index_t>(range.begin, 0), std::min(range.end, extent)};
}

void append(std::vector<Range>& ranges, const Range& range) {
  if (range.size() == 0) return;
  if (!ranges.empty() && ranges.back().end >= range.begin) {
    ranges.back().end = std::max(ranges.back().end, range.end);
  } else {
    ranges.push_back(range);
  }
}

AxisCounts counts_of(const Range& range, index_t extent) {
  if (range.size() == 0) return {};
  const auto size = static_cast<double>(range.size());
  return {.size = size, .adjacent = size - 1, .wraps = range.begin == 0 && range.end == extent ? 1.0 : 0.0};
}

}  // namespace

std::vector<Range> windowed_set(const NestSpace& space, int axis, const Range& results, const Range& taps) {
  const Window window(space, axis, results, taps);
  const index_t extent = space.source_extent[axis];
  std::vector<Range> ranges;
  if (window.empty()) return ranges;
  if (window.is_range()) {
    append(ranges, clipped(window.span(), extent));
    return ranges;
  }
  // The smaller progression counts ranges, or points, of the other one.
  std::vector<Range> pieces;
  const auto add = [&](const Progression& inner, index_t shift) {
    if (inner.step == 1) {
      pieces.push_back({inner.start + shift, inner.start + shift + inner.count});
      return;
    }
    for (index_t i = 0; i < inner.count; ++i) {
      const index_t at = inner.start + shift + i * inner.step;
      pieces.push_back({at, at + 1});
    }
  };
  const bool taps_inside = window.taps.step == 1;
  const Progression &inner = taps_inside ? window.taps : window.results,
                    &outer = taps_inside ? window.results : window.taps;
  for (index_t i = 0; i < outer.count; ++i) add(inner, outer.start + i * outer.step);
  std::sort(pieces.begin(), pieces.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (const Range& piece : pieces) append(ranges, clipped(piece, extent));
  return ranges;
}

std::vector<Range> windowed_phases(const NestSpace& space, int axis, const Range& results, const Range& taps) {
  const index_t step = space.result_step[axis], extent = space.source_extent[axis];
  if (step == 1) return windowed_set(space, axis, results, taps);
  const index_t numbers = (extent + step - 1) / step;  // of a remainder
  const auto up = [step](index_t n) { return n <= 0 ? 0 : (n + step - 1) / step; };
  std::vector<Range> pieces, ranges;
  for (index_t tap = taps.begin; tap < taps.end; ++tap) {
    // Results whose voxel lies in the tensor. A tap meets voxels of one remainder.
    const index_t shift = tap * space.tap_step[axis] - space.offset[axis];
    const index_t begin = std::max(results.begin, up(-shift)), end = std::min(results.end, up(extent - shift));
    if (begin >= end) continue;
    const index_t voxel = begin * step + shift, number = voxel % step * numbers + voxel / step;
    pieces.push_back({number, number + end - begin});
  }
  std::sort(pieces.begin(), pieces.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (const Range& piece : pieces) append(ranges, piece);
  return ranges;
}

AxisCounts windowed_counts(const NestSpace& space, int axis, const Range& results, const Range& taps) {
  const index_t extent = space.source_extent[axis];
  const Window window(space, axis, results, taps);
  if (window.empty()) return {};
  if (window.is_range()) return counts_of(clipped(window.span(), extent), extent);
  const std::vector<Range> ranges = windowed_set(space, axis, results, taps);
  AxisCounts counts;
  for (const Range& range : ranges) counts += counts_of(range, extent);
  const bool wraps = !ranges.empty() && ranges.front().begin == 0 && ranges.back().end == extent;
  counts.wraps = wraps ? 1 : 0;
  return counts;
}

AxisCounts strided_counts(const Range& range, index_t step, index_t first, index_t extent) {
  if (range.size() == 0) return {};
  const auto size = static_cast<double>(range.size());
  const bool wraps = range.begin * step + first == 0 && (range.end - 1) * step + first == extent - 1;
  return {.size = size, .adjacent = step == 1 ? size - 1 : 0, .wraps = wraps ? 1.0 : 0.0};
}

ChannelCounts channel_counts(const Range& range, index_t all, index_t block, index_t groups) {
  if (range.size() == 0) return {};
  const index_t first = range.begin / block, last = (range.end - 1) / block;
  index_t full = 0;
  const auto is_full = [&](index_t i) {
    return range.begin <= i * block && range.end >= std::min(all, (i + 1) * block);
  };
  full += is_full(first) ? 1 : 0;
  if (last > first) full += (is_full(last) ? 1 : 0) + (last - first - 1);
  ChannelCounts counts{.channels = counts_of(range, groups == 1 ? all : all * groups),
                       .blocks = static_cast<double>(last - first + 1),
                       .full = static_cast<double>(full),
                       .joins = static_cast<double>(last - first)};
  return counts;
}

}  // namespace convolume::plan
