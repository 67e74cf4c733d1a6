#include "conv/streamed/stream_plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "conv/implementations.hpp"
#include "conv/spectra/tiled_choice.hpp"
#include "conv/toom_cook/window_choice.hpp"
#include "convolume/error.hpp"
#include "convolume/machine.hpp"
#include "core/checked.hpp"
#include "plan/cost_constants.hpp"
#include "plan/groups.hpp"
#include "plan/polyphase.hpp"
#include "plan/toom_cook_cost.hpp"

namespace convolume::conv {
using plan::is_depthwise;
using plan::one_group;

namespace {

/// Returns which share of the shorter one of transfers and computation steps wait for each other if both take equally
/// long. Steps do not take equal times, and more buffers even this out. Chosen after the tables of
/// docs/performance/log/streaming.md.
double waiting_share(const std::array<int, 3>& buffers) {
  const int x = buffers[0], w = buffers[1];
  if (x == 2) return 0.30;
  if (x == 3) return w > x ? 0.10 : 0.20;
  return 0.08;
}

/// Returns the seconds that transfers and computation take together if they overlap, without the first load and the
/// last store. The less equal they are, the less they wait for each other.
double overlapped(double transfers, double compute, const std::array<int, 3>& buffers) {
  const double longer = std::max(transfers, compute), shorter = std::min(transfers, compute);
  return longer + waiting_share(buffers) * shorter * shorter / longer;
}

constexpr index_t parts_of(index_t extent, index_t tile) { return (extent + tile - 1) / tile; }

/// The voxels of x, along one axis, that results [begin, end) read, and the padding around them.
struct Window {
  index_t begin = 0, end = 0, pad_before = 0, pad_after = 0;
  index_t extent() const noexcept { return end - begin; }
  bool in_padding() const noexcept { return extent() < 1 || extent() + pad_after < 1; }  ///< results read padding alone
};

/// `whole_tile` is StreamCut::whole_tile along the axis.
Window window_of(const ConvProblem& p, int axis, index_t whole_tile, index_t begin, index_t end) {
  const index_t stride = p.stride[axis], dilation = p.dilation[axis];
  const index_t start = begin * stride - p.pad_before[axis];
  const index_t stop = (end - 1) * stride - p.pad_before[axis] + p.span()[axis];
  index_t read = stop;
  if (whole_tile > 0) {
    // All phases of x are read as far as the longest phase of the kernel is.
    const index_t last = begin + round_up(end - begin, whole_tile) - 1;
    read = last * stride - p.pad_before[axis] + (round_up(p.kernel[axis], stride) - 1) * dilation + 1;
  }
  Window window{.begin = std::max<index_t>(start, 0), .end = std::min(read, p.input[axis])};
  window.pad_before = window.begin - start;
  window.pad_after = stop - window.end;
  return window;
}

/// The chunks that some intervals of an axis meet: their number, and their elements that lie within the axis.
struct MetChunks {
  index_t count = 0, elements = 0;
  void add(index_t begin, index_t end, index_t chunk, index_t axis) {
    const index_t first = begin / chunk, last = parts_of(end, chunk);
    count += last - first;
    elements += std::min(last * chunk, axis) - first * chunk;
  }
};

/// The tiles along one axis of voxels.
struct AxisTiles {
  index_t tile = 1, count = 0;
  MetChunks chunks{};                     ///< of x
  index_t windows = 0, largest = 0;       ///< voxels of x that all tiles read together, and that one tile reads at most
  bool whole_x = false, whole_y = false;  ///< one tile reads, or writes, the complete axis
  bool reads_x = true;                    ///< no tile lies in the padding alone
};

AxisTiles axis_tiles(const ConvProblem& p, const Extent3& output, int axis, index_t whole_tile, index_t chunk,
                     index_t tile) {
  AxisTiles tiles{.tile = tile, .count = parts_of(output[axis], tile)};
  for (index_t begin = 0; begin < output[axis]; begin += tile) {
    const Window window = window_of(p, axis, whole_tile, begin, std::min(begin + tile, output[axis]));
    tiles.reads_x = tiles.reads_x && !window.in_padding();
    tiles.windows += window.extent();
    if (window.extent() > 0) tiles.chunks.add(window.begin, window.end, chunk, p.input[axis]);
    tiles.largest = std::max(tiles.largest, window.extent());
  }
  tiles.whole_y = tiles.count == 1;
  tiles.whole_x = tiles.count == 1 && tiles.largest == p.input[axis];
  return tiles;
}

/// Counts what a cut loads, stores and holds.
class Counter {
 public:
  Counter(const ConvProblem& problem, const std::array<AxisTiles, 3>& axes, const StreamTile& tile,
          const Shape5& x_chunk, bool k_outermost)
      : p_(problem),
        output_(problem.output()),
        axes_(axes),
        tile_(tile),
        n_parts_(parts_of(p_.batch, tile.n)),
        k_parts_(parts_of(p_.out_channels, tile.k)),
        c_parts_(p_.groups > 1 ? 1 : parts_of(p_.in_channels, tile.c)),
        places_(n_parts_ * axes[0].count * axes[1].count * axes[2].count),
        k_outermost_(k_outermost),
        chunked_(x_chunk.elements() > 1),
        tile_channels_(p_.groups > 1 ? tile.k / (p_.out_channels / p_.groups) * (p_.in_channels / p_.groups)
                                     : std::min(tile.c, p_.in_channels)) {
    for (index_t c = 0; c < p_.in_channels; c += tile_channels_) {
      x_channels_.add(c, std::min(c + tile_channels_, p_.in_channels), x_chunk.c, p_.in_channels);
    }
  }

  index_t c_parts() const { return c_parts_; }
  index_t tiles() const { return places_ * k_parts_ * c_parts_; }
  double loads_x() const {
    return static_cast<double>(places_ * c_parts_ * (p_.groups > 1 ? k_parts_ : 1)) * repeats_x();
  }
  double words_x() const {
    return static_cast<double>(p_.batch * x_channels_.elements) * of_chunks(&MetChunks::elements) * repeats_x();
  }
  double runs_x() const {
    if (chunked_) return static_cast<double>(p_.batch * x_channels_.count) * of_chunks(&MetChunks::count) * repeats_x();
    const index_t split = c_parts_ * (p_.groups > 1 ? k_parts_ : 1);
    return runs(&AxisTiles::whole_x, &AxisTiles::windows, p_.in_channels, split) * repeats_x();
  }
  double loads_w() const { return static_cast<double>(k_parts_ * c_parts_) * repeats_w(); }
  double words_w() const { return static_cast<double>(p_.w_shape().elements()) * repeats_w(); }
  double runs_w() const {
    return static_cast<double>(c_parts_ == 1 ? k_parts_ : p_.out_channels * c_parts_) * repeats_w();
  }
  double loads_y() const { return static_cast<double>(places_ * k_parts_); }
  double words_y() const {
    return static_cast<double>(p_.batch * p_.out_channels * output_.z) * static_cast<double>(output_.y * output_.x);
  }
  double runs_y() const { return runs(&AxisTiles::whole_y, nullptr, p_.out_channels, k_parts_); }

  /// Return the elements of the largest tile of an operand.
  double held_x() const {
    return static_cast<double>(tile_.n * tile_channels_ * axes_[0].largest * axes_[1].largest) *
           static_cast<double>(axes_[2].largest);
  }
  double held_w() const {
    return static_cast<double>(tile_.k * std::min(tile_.c, p_.in_channels / p_.groups) * p_.kernel.volume());
  }
  double held_y() const {
    return static_cast<double>(tile_.n * tile_.k * axes_[0].tile * axes_[1].tile) * static_cast<double>(axes_[2].tile);
  }

 private:
  double of_chunks(index_t MetChunks::*member) const {
    double all = 1;
    for (const AxisTiles& axis : axes_) all *= static_cast<double>(axis.chunks.*member);
    return all;
  }
  /// Returns how often all of x, or of w, is read.
  double repeats_x() const {
    if (p_.groups > 1) return 1;
    const bool again = c_parts_ > 1 || (k_outermost_ && places_ > 1);
    return again ? static_cast<double>(k_parts_) : 1;
  }
  double repeats_w() const {
    const bool again = c_parts_ > 1 || (!k_outermost_ && k_parts_ > 1);
    return again ? static_cast<double>(places_) : 1;
  }
  /// Returns the stretches of neighbouring elements of all tiles. `sums` holds the voxels of all tiles along an axis,
  /// or null if tiles do not overlap.
  double runs(bool AxisTiles::*whole, index_t AxisTiles::*sums, index_t channels, index_t channel_parts) const {
    const auto length = [&](int axis) {
      const AxisTiles& tiles = axes_[static_cast<std::size_t>(axis)];
      return static_cast<double>(sums != nullptr ? tiles.*sums : output_[axis]);
    };
    const auto count = [&](int axis) { return static_cast<double>(axes_[static_cast<std::size_t>(axis)].count); };
    const auto maps = static_cast<double>(p_.batch * channels);
    if (!(axes_[2].*whole)) return maps * length(0) * length(1) * count(2);
    if (!(axes_[1].*whole)) return maps * length(0) * count(1);
    if (!(axes_[0].*whole)) return maps * count(0);
    return static_cast<double>(channel_parts == 1 ? n_parts_ : p_.batch * channel_parts);
  }

  const ConvProblem& p_;
  Extent3 output_;
  const std::array<AxisTiles, 3>& axes_;
  StreamTile tile_;
  index_t n_parts_, k_parts_, c_parts_, places_;
  bool k_outermost_, chunked_;
  index_t tile_channels_;  // of x
  MetChunks x_channels_;
};

/// Returns the buffers of x, w and y. One thread reads x and w in the order of the steps. So few buffers of w would
/// also delay the next tile of x, and small tiles of w get more of them.
std::array<int, 3> buffers_of(int buffers, double held_x, double held_w) {
  constexpr int of_small_weights = 4;
  constexpr double small = 0.25;
  const bool more = buffers > 1 && held_w <= small * held_x;
  return {buffers, more ? std::max(buffers, of_small_weights) : buffers, buffers};
}

double price_of(const TransferPrice& price, double loads, double runs, double bytes) {
  return price.of(loads, runs, bytes / 4);
}

StreamCosts costs_of(const ConvProblem& p, const std::array<AxisTiles, 3>& axes, const StreamTile& tile,
                     const Shape5& x_chunk, bool k_outermost, const StreamTerms& terms) {
  const Counter counter(p, axes, tile, x_chunk, k_outermost);
  const auto element = static_cast<double>(size_of(p.type));
  StreamCosts costs{.tile = tile,
                    .channels_outermost = k_outermost,
                    .buffers = buffers_of(terms.buffers, counter.held_x(), counter.held_w()),
                    .tiles = counter.tiles()};
  costs.loads = {counter.loads_x(), counter.loads_w(), counter.loads_y()};
  costs.bytes = {element * counter.words_x(), element * counter.words_w(), element * counter.words_y()};
  costs.runs = {counter.runs_x(), counter.runs_w(), counter.runs_y()};
  const std::array prices{terms.prices.x, terms.prices.w, terms.prices.y};
  double transfers = 0, ends = 0;  // `ends`: the first load and the last store, which nothing hides
  for (std::size_t i = 0; i < prices.size(); ++i) {
    costs.transfer_seconds[i] = price_of(prices[i], costs.loads[i], costs.runs[i], costs.bytes[i]);
    transfers += costs.transfer_seconds[i];
    ends += costs.transfer_seconds[i] / costs.loads[i];
  }
  const double preparations = counter.words_w() / static_cast<double>(p.w_shape().elements());
  costs.compute_seconds = terms.compute_seconds + (preparations - 1) * terms.prepare_seconds +
                          static_cast<double>(costs.tiles) * plan::execution_seconds;
  costs.seconds = terms.buffers == 1 ? transfers + costs.compute_seconds
                                     : overlapped(transfers, costs.compute_seconds, costs.buffers) + ends;

  const auto copies = [&](std::size_t operand) {
    return std::min<double>(costs.buffers[operand], costs.loads[operand]);
  };
  const double partial_sums = counter.c_parts() > 1 ? 1 : 0;
  const auto pages = [&](double words) {
    constexpr auto page = static_cast<double>(page_bytes);
    return page * std::ceil(element * words / page);
  };
  const double buffers = copies(0) * pages(counter.held_x()) + copies(1) * pages(counter.held_w()) +
                         (copies(2) + partial_sums) * pages(counter.held_y());
  const double prepared = terms.prepared_bytes * counter.held_w() / static_cast<double>(p.w_shape().elements());
  costs.peak_bytes = terms.engine_bytes + static_cast<std::size_t>(buffers + prepared);
  return costs;
}

/// Returns lengths of tiles that divide an axis about evenly, the longest first. For each of them there is also the
/// next one that is a multiple of `chunk`, in voxels of y.
std::vector<index_t> lengths(index_t extent, index_t unit, index_t chunk = 1) {
  std::vector<index_t> all;
  const index_t most = parts_of(extent, unit), whole_chunks = std::lcm(unit, chunk);
  const auto add = [&](index_t length) {
    all.push_back(std::min(extent, round_up(length, unit)));
    all.push_back(std::min(extent, round_up(length, whole_chunks)));
  };
  for (index_t parts = 1; parts <= most; parts = parts < 8 ? parts + 1 : parts + parts / 6) {
    add(parts_of(extent, parts));
  }
  add(unit);
  std::sort(all.begin(), all.end(), std::greater<>());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

bool better(const StreamCosts& a, const StreamCosts& b, std::size_t memory) {
  const bool fits = a.peak_bytes <= memory, other_fits = b.peak_bytes <= memory;
  if (fits != other_fits) return fits;
  if (!fits) return a.peak_bytes < b.peak_bytes;
  return std::pair(a.seconds, a.peak_bytes) < std::pair(b.seconds, b.peak_bytes);
}

std::array<AxisTiles, 3> axes_of(const StreamCut& cut) {
  const Extent3 output = cut.problem.output();
  const auto tiles = [&](int axis) {
    return axis_tiles(cut.problem, output, axis, cut.whole_tile[axis], cut.x_chunk.extent[axis], cut.tile.y[axis]);
  };
  return {tiles(0), tiles(1), tiles(2)};
}

/// Sets the part of a step that belongs to one axis of voxels.
void set_axis(StreamStep& step, const StreamCut& cut, int axis, std::pair<index_t, index_t> results) {
  const auto [begin, end] = results;
  const Window window = window_of(cut.problem, axis, cut.whole_tile[axis], begin, end);
  step.y.begin[axis] = begin;
  step.y.shape.extent[axis] = end - begin;
  step.x.begin[axis] = window.begin;
  step.x.shape.extent[axis] = window.extent();
  step.problem.input[axis] = window.extent();
  step.problem.pad_before[axis] = window.pad_before;
  step.problem.pad_after[axis] = window.pad_after;
}

/// Sets the samples and channels of a step.
void set_channels(StreamStep& step, const ConvProblem& p, std::pair<index_t, index_t> n, std::pair<index_t, index_t> k,
                  std::pair<index_t, index_t> c) {
  const index_t k_per_group = p.out_channels / p.groups, c_per_group = p.in_channels / p.groups;
  step.problem.groups = p.groups > 1 ? (k.second - k.first) / k_per_group : 1;
  step.problem.batch = step.x.shape.n = step.y.shape.n = n.second - n.first;
  step.x.n = step.y.n = n.first;
  step.problem.out_channels = step.y.shape.c = step.w.shape.n = k.second - k.first;
  step.y.c = step.w.n = k.first;
  step.w.c = p.groups > 1 ? 0 : c.first;
  step.w.shape.c = p.groups > 1 ? c_per_group : c.second - c.first;
  step.w.shape.extent = p.kernel;
  step.x.c = p.groups > 1 ? k.first / k_per_group * c_per_group : c.first;
  step.problem.in_channels = step.x.shape.c = step.problem.groups * step.w.shape.c;
}

}  // namespace

std::vector<StreamStep> steps_of(const StreamCut& cut) {
  const ConvProblem& p = cut.problem;
  const StreamTile& t = cut.tile;
  const Extent3 output = p.output();
  const auto for_parts = [](index_t extent, index_t tile, const auto& body) {
    for (index_t i = 0; i < extent; i += tile) body(std::pair(i, std::min(i + tile, extent)));
  };
  const index_t c_all = p.groups > 1 ? 1 : p.in_channels, c_tile = p.groups > 1 ? 1 : t.c;
  std::vector<StreamStep> steps;
  const auto add_parts = [&](const std::pair<index_t, index_t>& n, const std::pair<index_t, index_t>& k, const auto& z,
                             const auto& y, const auto& x) {
    for_parts(c_all, c_tile, [&](const auto& c) {
      StreamStep step{.x = {}, .w = {}, .y = {}, .problem = p};
      set_channels(step, p, n, k, c);
      set_axis(step, cut, 0, z);
      set_axis(step, cut, 1, y);
      set_axis(step, cut, 2, x);
      step.first_part = c.first == 0;
      step.last_part = c.second == c_all;
      if (c_tile < c_all) step.problem.epilogue = {};  // it follows the sum of all parts
      steps.push_back(step);
    });
  };
  const auto for_places = [&](const auto& body) {
    for_parts(p.batch, t.n, [&](const auto& n) {
      for_parts(output.z, t.y.z, [&](const auto& z) {
        for_parts(output.y, t.y.y,
                  [&](const auto& y) { for_parts(output.x, t.y.x, [&](const auto& x) { body(n, z, y, x); }); });
      });
    });
  };
  const auto for_channels = [&](const auto& body) { for_parts(p.out_channels, t.k, body); };
  if (cut.channels_outermost) {
    for_channels([&](const auto& k) {
      for_places([&](const auto& n, const auto& z, const auto& y, const auto& x) { add_parts(n, k, z, y, x); });
    });
  } else {
    for_places([&](const auto& n, const auto& z, const auto& y, const auto& x) {
      for_channels([&](const auto& k) { add_parts(n, k, z, y, x); });
    });
  }
  return steps;
}

bool cuts_channels_of_windows(const ConvProblem& problem) {
  return problem.out_channels % plan::least_window_channels == 0 &&
         problem.in_channels % plan::least_window_channels == 0;
}

StreamUnits units_of(const ConvPlan& plan) {
  const ConvProblem& p = plan.problem();
  const index_t block = channel_block(p.type), k_per_group = p.out_channels / p.groups;
  StreamUnits units{.tile = {.n = 1, .k = std::min(block, p.out_channels), .c = std::min(block, p.in_channels)}};
  if (p.groups > 1) {
    // Depthwise engines have channels in their lanes, so they need whole blocks of them to stay depthwise.
    units.tile.k = is_depthwise(p) ? std::min(block, p.groups) : k_per_group;
    units.tile.c = p.in_channels;
  }
  const Choice choice = parse_choice(plan.choice());
  const Extent3 output = p.output();
  if (const auto* windows = choice.as<WindowParts>()) {
    // Tiles begin with whole windows. Each part of the channels has as many as the engine needs.
    const bool cuts = p.groups == 1 && cuts_channels_of_windows(p);
    if (p.groups == 1) units.tile.k = cuts ? plan::least_window_channels : p.out_channels;
    units.tile.c = cuts ? plan::least_window_channels : p.in_channels;
    units.whole_tile = windows->results();
    for (int axis = 0; axis < 3; ++axis) units.tile.y[axis] = std::min(output[axis], units.whole_tile[axis]);
    return units;
  }
  if (choice.as<TiledParts>() == nullptr) return units;
  const ConvProblem one = p.groups > 1 && !is_depthwise(p) ? one_group(p) : p;
  const plan::Tiling tiling =
      tilings_of(one, plan::Wanted{.forward = true}, choice.parts.get(), machine_model()).forward;
  const plan::Polyphase polyphase(one, tiling.z_unrolled);
  for (int axis = 0; axis < 3; ++axis) {
    units.whole_tile[axis] = tiling.valid[axis] * polyphase.y_step[axis];
    units.tile.y[axis] = tiling.count[axis] == 1 ? output[axis] : std::min(output[axis], units.whole_tile[axis]);
  }
  return units;
}

StreamTile rounded(const ConvProblem& problem, const StreamUnits& all, StreamTile tile) {
  const StreamTile& units = all.tile;
  const Extent3 output = problem.output();
  const auto round = [](const char* name, index_t& value, index_t unit, index_t most) {
    if (value < 1) {
      throw InvalidArgument(fmt::format("tile extent {} = {}: use at least 1, at most {}", name, value, most));
    }
    value = std::min(most, round_up(value, unit));
  };
  round("n", tile.n, units.n, problem.batch);
  round("k", tile.k, units.k, problem.out_channels);
  round("c", tile.c, units.c, problem.in_channels);
  round("z", tile.y.z, units.y.z, output.z);
  round("y", tile.y.y, units.y.y, output.y);
  round("x", tile.y.x, units.y.x, output.x);
  for (int axis = 0; axis < 3; ++axis) {
    if (const index_t tiles = parts_of(output[axis], tile.y[axis]); tiles > most_stream_tiles) {
      throw InvalidArgument(
          fmt::format("tile extent {} = {}: {} tiles along this axis; use larger ones, at most {} tiles", "zyx"[axis],
                      tile.y[axis], tiles, most_stream_tiles));
    }
    if (axis_tiles(problem, output, axis, all.whole_tile[axis], 1, tile.y[axis]).reads_x) continue;
    throw InvalidArgument(fmt::format("tile extent {} = {}: a tile would lie in the padding alone; use a longer one",
                                      "zyx"[axis], tile.y[axis]));
  }
  return tile;
}

StreamCosts costs_of(const StreamCut& cut, const StreamTerms& terms) {
  return costs_of(cut.problem, axes_of(cut), cut.tile, cut.x_chunk, cut.channels_outermost, terms);
}

StreamCut cheapest_cut(const ConvProblem& p, const StreamUnits& all, const StreamTerms& terms, std::size_t memory,
                       bool may_split) {
  const StreamTile& units = all.tile;
  const Extent3 output = p.output();
  std::array<std::vector<AxisTiles>, 3> axes;
  for (int axis = 0; axis < 3; ++axis) {
    const auto& tried = axes[static_cast<std::size_t>(axis)];
    const index_t chunk = all.x_chunk.extent[axis], y_chunk = std::max<index_t>(1, chunk / p.stride[axis]);
    for (const index_t length : lengths(output[axis], units.y[axis], y_chunk)) {
      // They come the longest first. So many tiles are refused below, and counting them would take as long as they are.
      if (!tried.empty() && parts_of(output[axis], length) > most_stream_tiles) break;
      const AxisTiles tiles = axis_tiles(p, output, axis, all.whole_tile[axis], chunk, length);
      if (tiles.reads_x) axes[static_cast<std::size_t>(axis)].push_back(tiles);
    }
    if (axes[static_cast<std::size_t>(axis)].empty()) {
      throw Unsupported(fmt::format("{}: along axis {} windows lie in the padding alone; this is not streamed",
                                    to_string(p), "zyx"[axis]));
    }
  }
  const std::vector<index_t> ks = lengths(p.out_channels, units.k), ns = lengths(p.batch, units.n);
  std::optional<StreamCosts> best;
  const auto try_channels = [&](index_t c) {
    for (const AxisTiles& z : axes[0]) {
      for (const AxisTiles& y : axes[1]) {
        for (const AxisTiles& x : axes[2]) {
          for (const index_t k : ks) {
            for (const index_t n : ns) {
              for (const bool k_outermost : {false, true}) {
                const StreamTile tile{.n = n, .k = k, .c = c, .y = {z.tile, y.tile, x.tile}};
                const StreamCosts costs = costs_of(p, {z, y, x}, tile, all.x_chunk, k_outermost, terms);
                if (costs.tiles > most_stream_tiles && best) continue;
                if (!best || best->tiles > most_stream_tiles || better(costs, *best, memory)) best = costs;
              }
            }
          }
        }
      }
    }
  };
  for (const index_t c : may_split&& p.groups == 1 ? lengths(p.in_channels, units.c) : std::vector{p.in_channels}) {
    try_channels(c);
    if (best->peak_bytes <= memory) break;
  }
  return {.problem = p,
          .tile = best->tile,
          .whole_tile = all.whole_tile,
          .channels_outermost = best->channels_outermost,
          .x_chunk = all.x_chunk};
}

}  // namespace convolume::conv
