// Counts of elements and of stretches of addresses. Every axis of a tensor depends on one dimension, or on the results
// and the taps of one axis. So all counts are products over axes, and their sums over tiles are products of sums.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "convolume/nest.hpp"
#include "plan/nest/axis_sets.hpp"
#include "plan/nest/index_of.hpp"

namespace convolume::plan {
namespace {

using Tiles = std::vector<Range>;

/// More tiles of one dimension than this would take seconds to count.
constexpr double most_counted_tiles = 1 << 22;

void split(const Range& range, std::span<const index_t> steps, Tiles& tiles) {
  if (steps.empty()) {
    tiles.push_back(range);
    return;
  }
  for (index_t i = range.begin; i < range.end; i += steps.front()) {
    split({i, std::min(range.end, i + steps.front())}, steps.subspan(1), tiles);
  }
}

/// The tiles of each dimension into which some loops cut a space.
using Cut = std::array<Tiles, all_dims.size()>;

/// Cuts a space by the first `count` loops.
Cut cut(const NestSpace& space, std::span<const BoundLoop> loops) {
  Cut tiles;
  for (const Dim dim : all_dims) {
    std::vector<index_t> steps;
    for (const BoundLoop& loop : loops) {
      if (loop.dim == dim && (steps.empty() || loop.step < steps.back())) steps.push_back(loop.step);
    }
    const auto all = static_cast<double>(space.of(dim));
    if (!steps.empty() && all / static_cast<double>(steps.back()) > most_counted_tiles) {
      throw InvalidArgument(
          fmt::format("the loops cut the {} iterations of '{}' into more than {} tiles; use larger steps",
                      space.of(dim), name_of(dim), most_counted_tiles));
    }
    split({0, space.of(dim)}, steps, tiles[index_of(dim)]);
  }
  return tiles;
}

/// Sums over all tiles of the counts of each axis of a tensor.
class Counter {
 public:
  Counter(const NestSpace& space, const Cut& tiles) : space_(space), tiles_(tiles) {}

  Fetch voxels(Operand operand, Layout layout) const {
    const AxisCounts n = plain(Dim::n);
    const ChannelCounts c = channels(operand == Operand::x ? Dim::c : Dim::k, space_.groups);
    const std::array axes{axis(operand, 0), axis(operand, 1), axis(operand, 2)};
    const Inner inner(axes);
    const double words = n.size * c.channels.size * inner.size;
    double joined = n.adjacent * c.channels.wraps * inner.wraps;
    if (layout == Layout::plain) {
      joined += n.size * (c.channels.size * inner.adjacent + c.channels.adjacent * inner.wraps);
    } else {
      joined += n.size * ((c.channels.size - c.blocks) * inner.size + c.full * inner.adjacent + c.joins * inner.wraps);
    }
    return {.words = words, .runs = words - joined};
  }

  /// Returns the words of the largest tile.
  index_t largest(Operand operand) const {
    double words = operand == Operand::w ? 1 : longest(of(Dim::n));
    if (operand != Operand::x) words *= longest(of(Dim::k));
    if (operand != Operand::y) words *= longest(of(Dim::c));
    for (int i = 0; i < 3; ++i) {
      if (operand != space_.windowed) {
        words *= longest(of(operand == Operand::w ? tap_dim(i) : result_dim(i)));
        continue;
      }
      double most = 0;
      for (const Range& results : of(result_dim(i))) {
        for (const Range& taps : of(tap_dim(i))) most = std::max(most, windowed_counts(space_, i, results, taps).size);
      }
      words *= most;
    }
    return static_cast<index_t>(words);
  }

  Fetch weights(Layout layout) const {
    std::array<AxisCounts, 3> axes;
    for (int i = 0; i < 3; ++i) {
      for (const Range& taps : of(tap_dim(i))) {
        axes[static_cast<std::size_t>(i)] +=
            strided_counts(taps, space_.kernel_step[i], space_.kernel_first[i], space_.kernel_extent[i]);
      }
    }
    const Inner inner(axes);
    const ChannelCounts k = channels(Dim::k, 1), c = channels(Dim::c, 1);
    const double words = k.channels.size * c.channels.size * inner.size;
    double joined = 0;
    if (layout == Layout::plain) {
      const AxisCounts &outer = (space_.transposed ? c : k).channels, &middle = (space_.transposed ? k : c).channels;
      joined = outer.size * (middle.size * inner.adjacent + middle.adjacent * inner.wraps) +
               outer.adjacent * middle.wraps * inner.wraps;
    } else {
      const ChannelCounts &lanes = lanes_are_k() ? k : c, &terms = lanes_are_k() ? c : k;
      joined = (lanes.channels.size - lanes.blocks) * terms.channels.size * inner.size +
               lanes.full * ((terms.channels.size - terms.blocks) * inner.size + terms.full * inner.adjacent +
                             terms.joins * inner.wraps) +
               lanes.joins * terms.channels.wraps * inner.wraps;
    }
    return {.words = words, .runs = words - joined};
  }

 private:
  /// The product of three axes, the last of which is the fastest.
  struct Inner {
    explicit Inner(const std::array<AxisCounts, 3>& a)
        : size(a[0].size * a[1].size * a[2].size),
          adjacent(a[0].size * (a[1].size * a[2].adjacent + a[1].adjacent * a[2].wraps) +
                   a[0].adjacent * a[1].wraps * a[2].wraps),
          wraps(a[0].wraps * a[1].wraps * a[2].wraps) {}
    double size, adjacent, wraps;
  };

  const Tiles& of(Dim dim) const { return tiles_[index_of(dim)]; }

  /// The packed weights have the channels of the result in their lanes. Gradients of weights have those of dy.
  bool lanes_are_k() const {
    return space_.written == Operand::w ? space_.windowed == Operand::x : space_.written == Operand::y;
  }

  AxisCounts plain(Dim dim) const {
    AxisCounts sum;
    for (const Range& tile : of(dim)) sum += strided_counts(tile, 1, 0, space_.of(dim));
    return sum;
  }
  /// `groups` are those whose channels lie between the samples of a tensor.
  ChannelCounts channels(Dim dim, index_t groups) const {
    ChannelCounts sum;
    for (const Range& tile : of(dim)) {
      sum += channel_counts(tile, space_.of(dim), space_.channel_block, groups);
    }
    return sum;
  }
  AxisCounts axis(Operand operand, int i) const {
    AxisCounts sum;
    for (const Range& results : of(result_dim(i))) {
      if (operand != space_.windowed) {
        sum += strided_counts(results, space_.target_step[i], space_.target_first[i], space_.target_extent[i]);
        continue;
      }
      for (const Range& taps : of(tap_dim(i))) sum += windowed_counts(space_, i, results, taps);
    }
    return sum;
  }

  static double longest(const Tiles& tiles) {
    index_t most = 0;
    for (const Range& tile : tiles) most = std::max(most, tile.size());
    return static_cast<double>(most);
  }

  const NestSpace& space_;
  const Cut& tiles_;
};

Fetch count(const NestSpace& space, const Cut& tiles, Operand operand, Layout layout) {
  const Counter counter(space, tiles);
  Fetch counted = operand == Operand::w ? counter.weights(layout) : counter.voxels(operand, layout);
  counted.held = counter.largest(operand);
  return counted;
}

/// Returns the number of loops from the outermost to the last one before `depth` that moves the operand's footprint.
std::size_t moving_loops(const NestSpace& space, std::span<const BoundLoop> loops, std::size_t depth, Operand operand) {
  while (depth > 0 && (loops[depth - 1].trips() == 1 || !touches(space, operand, loops[depth - 1].dim))) --depth;
  return depth;
}

Fetch fetch(const NestSpace& space, std::span<const BoundLoop> loops, std::size_t depth, Operand operand,
            Layout layout) {
  const Cut tiles = cut(space, loops.first(moving_loops(space, loops, depth, operand)));
  Fetch fetch = count(space, tiles, operand, layout);
  fetch.loads = 1;
  for (const Dim dim : all_dims) {
    const auto trips = static_cast<double>(tiles[index_of(dim)].size());
    fetch.loads *= trips;
    if (!touches(space, operand, dim)) {
      fetch.words *= trips;
      fetch.runs *= trips;
    }
  }
  return fetch;
}

/// The loops of a nest in a space, with the questions of paper 000 about buffers.
class Blocking {
 public:
  Blocking(const LoopNest& nest, const NestSpace& space)
      : space_(space), microkernel_(nest.microkernel), loops_(bind(nest, space)) {}

  std::vector<Buffer> buffers(Operand operand) const {
    std::vector<Buffer> found;
    double asked = 0;  // words that the next buffer inside loads
    for (std::size_t depth = loops_.size(); depth > 0;) {
      std::size_t outside = depth;
      while (outside > 0 && (loops_[outside - 1].trips() == 1 || reuses(operand, outside - 1))) --outside;
      if (passes(outside, depth) > 1) {
        // The microkernel keeps nothing between calls. A buffer inside of it serves single multiply-adds.
        if (found.empty()) asked = touched(operand, depth > microkernel_ ? loops_.size() : microkernel_);
        found.push_back(buffer(operand, outside, depth, asked));
        asked = fetch(space_, loops_, outside, operand, Layout::plain).words;
      }
      depth = outside == depth ? depth - 1 : outside;
    }
    set_table2(found);
    return found;
  }

 private:
  const BoundLoop& loop(std::size_t i) const { return loops_[i]; }

  /// Returns whether a loop runs on elements that its own earlier iterations have used.
  bool reuses(Operand operand, std::size_t i) const {
    if (!touches(space_, operand, loop(i).dim)) return true;
    if (operand != space_.windowed || !is_tap(loop(i).dim)) return false;
    const Dim results = result_dim(static_cast<int>(index_of(loop(i).dim) - index_of(Dim::kz)));
    return std::any_of(loops_.begin() + static_cast<std::ptrdiff_t>(i), loops_.end(),
                       [&](const BoundLoop& inner) { return inner.dim == results && inner.trips() > 1; });
  }

  double passes(std::size_t begin, std::size_t end) const {
    double passes = 1;
    for (std::size_t i = begin; i < end; ++i) passes *= static_cast<double>(loop(i).trips());
    return passes;
  }

  /// Returns the number of elements that all iterations of the first `depth` loops touch, each counted anew.
  double touched(Operand operand, std::size_t depth) const {
    const Cut tiles = cut(space_, std::span(loops_).first(depth));
    double words = count(space_, tiles, operand, Layout::plain).words;
    for (const Dim dim : all_dims) {
      if (!touches(space_, operand, dim)) words *= static_cast<double>(tiles[index_of(dim)].size());
    }
    return words;
  }

  Buffer buffer(Operand operand, std::size_t outside, std::size_t depth, double asked) const {
    const Fetch filled = fetch(space_, loops_, outside, operand, Layout::plain);
    Buffer buffer{.operand = operand, .depth = outside, .words = filled.held, .loads = filled.loads};
    buffer.passes = passes(outside, depth);
    buffer.reads_exact = touched(operand, depth);
    buffer.reads_plain = asked;
    if (operand == space_.written) {
      const double first = touched(operand, 0);
      buffer.reads_exact = 2 * buffer.reads_exact - first;
      buffer.reads_plain = 2 * buffer.reads_plain - first;
    }
    buffer.reads_table2 = rate(operand, outside, depth);
    return buffer;
  }

  /// Returns the iterations of a dimension that the loops from `depth` on cover.
  double inside(Dim dim, std::size_t depth) const {
    for (std::size_t i = depth; i < loops_.size(); ++i) {
      if (loop(i).dim == dim) return static_cast<double>(loop(i).extent);
    }
    const auto outer = std::any_of(loops_.begin(), loops_.end(), [&](const BoundLoop& l) { return l.dim == dim; });
    return outer ? 1 : static_cast<double>(space_.of(dim));
  }

  /// Returns the refetch rate of Table 2 for the loops of a buffer. Z and Fd are treated as Y and Fh are. Loops over
  /// taps have no rate in the table; the text gives them F, without the border of the window.
  double rate(Operand operand, std::size_t outside, std::size_t depth) const {
    double rate = operand == space_.written ? 2 : 1;
    bool has_border = false;
    for (std::size_t i = outside; i < depth; ++i) {
      rate *= static_cast<double>(loop(i).extent) / static_cast<double>(loop(i).step);
      has_border = has_border || (operand == space_.windowed && !is_tap(loop(i).dim));
    }
    if (!has_border) return rate;
    for (int axis = 0; axis < 3; ++axis) {
      const double results = inside(result_dim(axis), depth), taps = static_cast<double>(space_.of(tap_dim(axis)));
      rate *= (results + taps - 1) / results;
    }
    return rate;
  }

  /// Replaces the rates by equation 1: the elements of the whole tensor times the rates of all buffers from this one
  /// outwards.
  void set_table2(std::vector<Buffer>& buffers) const {
    double accesses = 0;
    for (std::size_t i = buffers.size(); i-- > 0;) {
      if (accesses == 0) {
        accesses = 1;
        for (const Dim dim : all_dims) {
          const bool counts =
              touches(space_, buffers[i].operand, dim) && (buffers[i].operand == Operand::w || !is_tap(dim));
          if (counts) accesses *= static_cast<double>(space_.of(dim));
        }
      }
      accesses *= buffers[i].reads_table2;
      buffers[i].reads_table2 = accesses;
    }
  }

  const NestSpace& space_;
  std::size_t microkernel_;
  std::vector<BoundLoop> loops_;
};

}  // namespace

Footprint footprint(const NestSpace& space, const Extents& begin, const Extents& end, Operand operand, Layout layout) {
  Cut tile;
  for (const Dim dim : all_dims) {
    const std::size_t i = index_of(dim);
    if (begin[i] < 0 || begin[i] > end[i] || end[i] > space.extent[i]) {
      throw InvalidArgument(fmt::format("iterations {} to {} of '{}' lie outside of the space, which has {}", begin[i],
                                        end[i], name_of(dim), space.extent[i]));
    }
    tile[i] = {{begin[i], end[i]}};
    // An iteration touches an element of each operand, so a range without iterations touches none.
    if (begin[i] == end[i]) return {};
  }
  const Fetch counted = count(space, tile, operand, layout);
  return {.words = static_cast<index_t>(counted.words), .runs = static_cast<index_t>(counted.runs)};
}

Fetch fetch(const LoopNest& nest, const NestSpace& space, std::size_t depth, Operand operand, Layout layout) {
  if (depth > nest.loops.size()) {
    throw InvalidArgument(fmt::format("nest '{}': depth {} lies inside of its {} loops; use at most their number",
                                      to_string(nest), depth, nest.loops.size()));
  }
  return fetch(space, bind(nest, space), depth, operand, layout);
}

std::vector<Buffer> buffers(const LoopNest& nest, const NestSpace& space) {
  const Blocking blocking(nest, space);
  std::vector<Buffer> all;
  for (const Operand operand : operands) {
    const std::vector<Buffer> some = blocking.buffers(operand);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace convolume::plan
