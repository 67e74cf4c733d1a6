#include "conv/direct/direct_region.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "conv/caches/cache_lines.hpp"
#include "conv/caches/scratch.hpp"
#include "conv/direct/line_product.hpp"
#include "conv/tensor_io/block_box.hpp"
#include "ops/activation.hpp"

namespace convolume::conv {
namespace {

/// What a region exchanges at once has to stay in the L2 beside what it reads and writes.
constexpr index_t most_exchanged_bytes = 256 << 10;

template <class T>
class RegionRun {
 public:
  RegionRun(const VoxelDirection<T>& d, const Region& region, const RegionEnds<T>& ends, const T* weights,
            std::pmr::memory_resource* memory)
      : d_(d),
        region_(region),
        ends_(ends),
        weights_(weights),
        window_(d.map.window(region.box)),
        source_in_place_(source_in_place(d, window_, ends)),
        target_in_place_(target_in_place(d, ends)),
        past_caches_(target_in_place_ && written_once() && writes_past_caches(ends.target, d.past_caches_from)),
        scratch_(memory, scratch_bytes(d, region, ends)) {
    if (!source_in_place_) staged_source_ = take(staged_blocks(d, window_, ends));
    if (!target_in_place_) staged_target_ = take(region.columns * volume(region.box));
    row_ = take(std::max(window_.extent().x, region.box.extent().x));
    bias_ = take(region.columns);
    if (d.exchanges) exchanged_ = take(region.columns * exchanged_column(d) / block);
    const PassCount most = count_passes(d, region);
    passes_ = scratch_.template take<Pass>(bytes_of<Pass>(most.passes));
    steps_ = scratch_.template take<DirectStep>(bytes_of<DirectStep>(most.steps));
  }

  static std::size_t scratch_bytes(const VoxelDirection<T>& d, const Region& region, const RegionEnds<T>& ends) {
    const Box window = d.map.window(region.box);
    index_t blocks = std::max(window.extent().x, region.box.extent().x) + region.columns;
    if (!source_in_place(d, window, ends)) blocks += staged_blocks(d, window, ends);
    if (!target_in_place(d, ends)) blocks += region.columns * volume(region.box);
    if (d.exchanges) blocks += region.columns * exchanged_column(d) / block;
    const PassCount most = count_passes(d, region);
    return static_cast<std::size_t>(blocks) * 64 + bytes_of<Pass>(most.passes) + bytes_of<DirectStep>(most.steps);
  }

  void run() {
    fill_bias();
    const BlockedBox<T> target = target_box();
    for (index_t first = 0; first < d_.weights.term_blocks(); first += d_.group) {
      const index_t blocks = std::min(d_.group, d_.weights.term_blocks() - first);
      const BlockedBox<const T> source = source_box(first, blocks);
      // The last blocks may be fewer, and the last one of fewer channels.
      const bool whole = blocks == d_.group && (first + blocks) * block <= d_.weights.terms;
      if (first == 0 || !whole) list_passes(first, blocks, source, target);
      const T* weights = weights_of(first, blocks);
      for (index_t i = 0; i < pass_count_; ++i) run_pass(passes_[i], first, weights, source, target);
    }
    finish();
  }

 private:
  static constexpr index_t block = fft::tile_lanes<T>;

  /// Some taps of results that the same taps reach: what registers sum up before memory is added to.
  struct Pass {
    std::ptrdiff_t source, target;  // of the first result, from where their boxes begin
    Extent3 count;
    const DirectStep* steps;
    index_t step_count;
    bool starts;  // no other taps of these blocks come before
  };
  /// Passes that a region's blocks take, and steps of all of them, at most.
  struct PassCount {
    index_t passes = 0, steps = 0;
  };
  static PassCount count_passes(const VoxelDirection<T>& d, const Region& region) {
    PassCount most;
    for (const DirectPhase& phase : d.map.phases()) {
      const index_t steps = d.group * static_cast<index_t>(phase.taps.size());
      d.map.for_each_alike(phase, region.box, [&](const Extent3&, const Extent3&) {
        most.passes += std::max<index_t>(1, (steps + steps_per_pass - 1) / steps_per_pass);
        most.steps += steps;
      });
    }
    return most;
  }
  /// In scratch.
  template <class Item>
  static std::size_t bytes_of(index_t count) {
    return whole_lines(static_cast<std::size_t>(count) * sizeof(Item));
  }

  /// Elements of what is exchanged at once for a column.
  static index_t exchanged_column(const VoxelDirection<T>& d) { return d.group * d.weights.taps * d.weights.square; }

  static index_t volume(const Box& box) {
    const Extent3 e = box.extent();
    return e.z * e.y * e.x;
  }
  static BoxStrides dense(const Extent3& e) { return {block, e.x * block, e.y * e.x * block}; }
  template <class U>
  static BoxStrides strides_of(const View<U>& tensor) {
    return {block, tensor.stride[3], tensor.stride[2]};
  }
  T* take(index_t blocks) { return scratch_.template take<T>(static_cast<std::size_t>(blocks) * 64); }
  static bool source_in_place(const VoxelDirection<T>& d, const Box& window, const RegionEnds<T>& ends) {
    const Extent3& e = ends.source.shape.extent;
    for (int axis = 0; axis < 3; ++axis) {
      if (window.begin[axis] < 0 || window.end[axis] > e[axis]) return false;
    }
    return (d.source_layout == Layout::blocked && ends.gradient == nullptr) || reads_rows(d, ends);
  }
  /// Rows of the only channel stay rows: in blocks they would take sixteen times as much.
  static bool reads_rows(const VoxelDirection<T>& d, const RegionEnds<T>& ends) {
    return d.weights.terms == 1 && d.source_layout == Layout::plain && ends.gradient == nullptr;
  }
  /// 64 bytes each.
  static index_t staged_blocks(const VoxelDirection<T>& d, const Box& window, const RegionEnds<T>& ends) {
    return reads_rows(d, ends) ? (volume(window) + block - 1) / block : d.group * volume(window);
  }
  static bool target_in_place(const VoxelDirection<T>& d, const RegionEnds<T>& ends) {
    return d.target_layout == Layout::blocked && !ends.add;
  }

  /// Whether sums of all taps and channels are done at once, and nothing is left to do to them.
  bool written_once() const {
    const bool one_pass = d_.group * d_.weights.taps <= steps_per_pass && d_.group == d_.weights.term_blocks();
    return one_pass && ends_.activation.kind == Activation::Kind::none && d_.weights.lanes % block == 0;
  }
  /// Whether a tap takes this result of a row from the padding.
  bool is_padding(const DirectTap& tap, const Extent3& base, index_t result) const {
    const index_t x = base.x + tap.offset.x + result * d_.map.source_step().x;
    return x < 0 || x >= ends_.source.shape.extent.x;
  }

  void fill_bias() {
    std::fill_n(bias_, region_.columns * block, T{0});
    if (!ends_.bias) return;
    const index_t first = region_.first_column * block;
    const index_t count = std::min(region_.columns * block, d_.weights.lanes - first);
    for (index_t i = 0; i < count; ++i) bias_[i] = ends_.bias(0, first + i, 0, 0, 0);
  }

  BlockedBox<T> target_box() const {
    if (!target_in_place_) {
      return {staged_target_, region_.box.begin, dense(region_.box.extent()), volume(region_.box) * block};
    }
    const auto view = block_of(ends_.target, Layout::blocked, region_.sample, region_.first_column * block);
    return {view.data, {0, 0, 0}, strides_of(ends_.target), ends_.target.stride[1]};
  }

  /// The window of the only channel: voxels lie side by side, those outside are zero.
  BlockedBox<const T> row_box() const {
    const View<const T>& from = ends_.source;
    if (source_in_place_) {
      return {&from(region_.sample, 0, 0, 0, 0), {0, 0, 0}, {1, from.stride[3], from.stride[2]}, 0};
    }
    const Extent3 e = window_.extent(), all = from.shape.extent;
    const index_t begin = std::clamp<index_t>(-window_.begin.x, 0, e.x);
    const index_t end = std::clamp<index_t>(all.x - window_.begin.x, begin, e.x);
    T* to = staged_source_;
    for (index_t z = window_.begin.z; z < window_.end.z; ++z) {
      for (index_t y = window_.begin.y; y < window_.end.y; ++y, to += e.x) {
        const bool inside = z >= 0 && z < all.z && y >= 0 && y < all.y && begin < end;
        std::fill_n(to, inside ? begin : e.x, T{0});
        if (!inside) continue;
        std::copy_n(&from(region_.sample, 0, z, y, window_.begin.x + begin), end - begin, to + begin);
        std::fill_n(to + end, e.x - end, T{0});
      }
    }
    return {staged_source_, window_.begin, {1, e.x, e.y * e.x}, 0};
  }

  /// Blocks [first, first + blocks) of the source's window.
  BlockedBox<const T> source_box(index_t first, index_t blocks) const {
    if (reads_rows(d_, ends_)) return row_box();
    if (source_in_place_) {
      const auto view = block_of(ends_.source, Layout::blocked, region_.sample, first * block);
      return {view.data, {0, 0, 0}, strides_of(ends_.source), ends_.source.stride[1]};
    }
    const index_t step = volume(window_) * block;
    for (index_t i = 0; i < blocks; ++i) {
      BoxSource<T> box{.block = block_of(ends_.source, d_.source_layout, region_.sample, (first + i) * block),
                       .origin = window_.begin,
                       .extent = window_.extent(),
                       .activation = ends_.gradient};
      if (ends_.gradient != nullptr) {
        box.y = block_of(ends_.y, d_.source_layout, region_.sample, (first + i) * block);
      }
      load_box(box, staged_source_ + i * step, row_);
    }
    return {staged_source_, window_.begin, dense(window_.extent()), step};
  }

  /// Adds all passes of results that the same taps reach. Where no tap does they get what they start from.
  void list_alike(const DirectPhase& phase, const Extent3& begin, const Extent3& count, index_t first, index_t blocks,
                  const BlockedBox<const T>& source, const BlockedBox<T>& target, DirectStep*& step) {
    const Extent3 base = d_.map.base(begin);
    const auto taps = static_cast<index_t>(phase.taps.size());
    Pass pass{.source = source.offset(base - source.origin),
              .target = target.offset(begin - target.origin),
              .count = count,
              .steps = nullptr,
              .step_count = 0,
              .starts = true};
    index_t b = taps > 0 ? 0 : blocks, t = 0;  // block and tap of the next step
    do {
      pass.steps = step;
      for (index_t i = 0; i < steps_per_pass && b < blocks; ++i) {
        const DirectTap& tap = phase.taps[static_cast<std::size_t>(t)];
        if (d_.map.meets(tap, base)) {
          *step++ = {.source = b * source.block + source.offset(tap.offset),
                     .weights = d_.weights.offset(0, b, tap.tap),
                     .terms = static_cast<int>(std::min(block, d_.weights.terms - (first + b) * block)),
                     .pads_first = is_padding(tap, base, 0),
                     .pads_last = is_padding(tap, base, count.x - 1)};
        }
        if (++t == taps) {
          ++b;
          t = 0;
        }
      }
      pass.step_count = step - pass.steps;
      if (pass.step_count > 0 || pass.starts) passes_[pass_count_++] = pass;
      pass.starts = false;
    } while (b < blocks);
  }

  /// The passes of `blocks` blocks of the source from `first` on, which serve any other as many as well.
  void list_passes(index_t first, index_t blocks, const BlockedBox<const T>& source, const BlockedBox<T>& target) {
    pass_count_ = 0;
    DirectStep* step = steps_;
    for (const DirectPhase& phase : d_.map.phases()) {
      d_.map.for_each_alike(phase, region_.box, [&](const Extent3& begin, const Extent3& count) {
        list_alike(phase, begin, count, first, blocks, source, target, step);
      });
    }
  }

  /// Those of blocks [first, first + blocks) for this region's columns.
  const T* weights_of(index_t first, index_t blocks) const {
    if (!d_.exchanges) return weights_ + d_.weights.offset(region_.first_column, first, 0);
    for (index_t i = 0; i < region_.columns; ++i) {
      T* to = exchanged_ + i * exchanged_column(d_);
      for (index_t b = 0; b < blocks; ++b, to += d_.weights.taps * d_.weights.square) {
        transpose_squares(not_exchanged(first + b, i), d_.weights.taps, false, to);
      }
    }
    return exchanged_;
  }
  const T* not_exchanged(index_t term_block, index_t column) const {
    const WeightBlocks<T> other{.terms = d_.weights.lanes, .lanes = d_.weights.terms, .taps = d_.weights.taps};
    return weights_ + other.offset(term_block, region_.first_column + column, 0);
  }

  /// From the `weights` of the blocks from `first` on to those behind them, at last to the next two columns'.
  std::ptrdiff_t next_weights(index_t first, const T* weights) const {
    const bool last = first + d_.group >= d_.weights.term_blocks();
    // Of several blocks the exchanged weights lie in another order.
    if (d_.exchanges) return last || d_.group > 1 ? 0 : distance(weights, not_exchanged(first + 1, 0));
    if (!last) return d_.weights.offset(0, d_.group, 0);
    const bool end = region_.first_column + region_.columns >= d_.weights.lane_blocks();
    return end ? 0 : 2 * d_.weights.column_step() - d_.weights.offset(0, first, 0);
  }
  /// Between elements of different arrays.
  static std::ptrdiff_t distance(const T* from, const T* to) {
    return (reinterpret_cast<std::intptr_t>(to) - reinterpret_cast<std::intptr_t>(from)) /
           static_cast<std::ptrdiff_t>(sizeof(T));
  }

  void run_pass(const Pass& pass, index_t first, const T* weights, const BlockedBox<const T>& source,
                const BlockedBox<T>& target) const {
    const bool add = first > 0 || !pass.starts;
    if (add && pass.step_count == 0) return;
    multiply(VoxelProduct<T>{.source = source.data + pass.source,
                             .source_strides = source.strides * d_.map.source_step(),
                             .steps = pass.steps,
                             .step_count = pass.step_count,
                             .weights = weights,
                             .weights_column = d_.exchanges ? exchanged_column(d_) : d_.weights.column_step(),
                             .weights_next = next_weights(first, weights),
                             .target = target.data + pass.target,
                             .target_strides = target.strides * d_.map.target_step(),
                             .target_column = target.block,
                             .bias = bias_,
                             .count = pass.count,
                             .columns = region_.columns,
                             .add = add,
                             .past_caches = past_caches_});
  }

  void finish() {
    for (index_t i = 0; i < region_.columns; ++i) {
      const BoxTarget<T> box{
          .block = block_of(ends_.target, d_.target_layout, region_.sample, (region_.first_column + i) * block),
          .origin = region_.box.begin,
          .extent = region_.box.extent(),
          .activation = ends_.activation,
          .add = ends_.add};
      // What was summed up in place may still need its activation, and zeros in lanes without a channel.
      const bool complete = ends_.activation.kind == Activation::Kind::none && box.block.channels == block;
      if (target_in_place_ && complete) continue;
      target_in_place_ ? activate_box(box) : store_box(staged_target_ + i * volume(region_.box) * block, box, row_);
    }
  }

  const VoxelDirection<T>& d_;
  const Region& region_;
  const RegionEnds<T>& ends_;
  const T* weights_;
  Box window_;
  bool source_in_place_, target_in_place_, past_caches_;
  Scratch scratch_;
  T *staged_source_ = nullptr, *staged_target_ = nullptr, *row_ = nullptr, *bias_ = nullptr, *exchanged_ = nullptr;
  Pass* passes_ = nullptr;
  DirectStep* steps_ = nullptr;
  index_t pass_count_ = 0;
};

/// Channels that a region computes.
template <class T>
index_t results_of(const VoxelDirection<T>& d, const Region& region) {
  return std::min(region.columns * d.weights.block, d.weights.lanes - region.first_column * d.weights.block);
}

/// Of a region of lines.
template <class T>
std::size_t bias_bytes(const VoxelDirection<T>& d, const Region& region) {
  return static_cast<std::size_t>(results_of(d, region)) * sizeof(T);
}

template <class T>
bool runs_lines(const VoxelDirection<T>& d, const RegionEnds<T>& ends) {
  return d.lines && ends.gradient == nullptr;
}

/// The region as products of lines: rows, or all of a plane's where they lie side by side.
template <class T>
void run_lines(const VoxelDirection<T>& d, const Region& region, const RegionEnds<T>& ends, const T* weights,
               std::pmr::memory_resource* memory) {
  const index_t first = region.first_column * d.weights.block, results = results_of(d, region);
  Scratch scratch(memory, bias_bytes(d, region));
  T* bias = scratch.take<T>(bias_bytes(d, region));
  for (index_t i = 0; i < results; ++i) bias[i] = ends.bias ? ends.bias(0, first + i, 0, 0, 0) : T{0};
  const Extent3 extent = region.box.extent();
  const bool joined = ends.source.stride[3] == extent.x && ends.target.stride[3] == extent.x;
  const index_t lines = joined ? 1 : extent.y, voxels = joined ? extent.y * extent.x : extent.x;
  for (index_t z = region.box.begin.z; z < region.box.end.z; ++z) {
    for (index_t line = 0; line < lines; ++line) {
      const index_t y = region.box.begin.y + line;
      T* target = &ends.target(region.sample, first, z, y, 0);
      multiply(LineProduct<T>{.source = &ends.source(region.sample, 0, z, y, 0),
                              .source_channel = ends.source.stride[1],
                              .weights = weights + region.first_column * d.weights.column_step(),
                              .weights_column = d.weights.column_step(),
                              .target = target,
                              .target_channel = ends.target.stride[1],
                              .bias = bias,
                              .voxels = voxels,
                              .terms = d.weights.terms,
                              .results = results,
                              .add = ends.add});
      for (index_t i = 0; i < results && ends.activation.kind != Activation::Kind::none; ++i) {
        T* channel = target + i * ends.target.stride[1];
        ops::activate(ends.activation, static_cast<const T*>(channel), channel, voxels);
      }
    }
  }
}

template <class T>
bool are_lines(const VoxelDirection<T>& d, const ConvProblem& p) {
  const Box all{{0, 0, 0}, d.map.domain()};
  const Box window = d.map.window(all);
  const bool plain = d.source_layout == Layout::plain && d.target_layout == Layout::plain;
  return plain && d.weights.taps == 1 && p.input == p.output() && window.begin == all.begin && window.end == all.end &&
         d.group == d.weights.term_blocks();
}

template <class T>
WeightBlocks<T> weights_of(const ConvProblem& p, bool forward) {
  return {.terms = forward ? p.in_channels : p.out_channels,
          .lanes = forward ? p.out_channels : p.in_channels,
          .taps = p.kernel.volume()};
}

}  // namespace

template <class T>
VoxelDirection<T>::VoxelDirection(const ConvProblem& p, plan::Direction direction)
    : map(p, direction),
      weights(weights_of<T>(p, direction == plan::Direction::forward)),
      source_layout(direction == plan::Direction::forward ? p.x_layout : p.y_layout),
      target_layout(direction == plan::Direction::forward ? p.y_layout : p.x_layout),
      group(std::clamp<index_t>(steps_per_pass / weights.taps, 1, weights.term_blocks())),
      grid(choose_regions(map, p.batch, group, weights.lane_blocks())) {
  lines = are_lines(*this, p);
  const index_t exchanged = grid.columns * group * weights.taps * weights.square * static_cast<index_t>(sizeof(T));
  exchanges = direction == plan::Direction::backward_data && p.batch * grid.per_sample() == 1 && !lines &&
              exchanged <= most_exchanged_bytes;
}

template struct VoxelDirection<float>;
template struct VoxelDirection<double>;

template <class T>
std::size_t region_scratch_bytes(const VoxelDirection<T>& direction, const Region& region, const RegionEnds<T>& ends) {
  return runs_lines(direction, ends) ? bias_bytes(direction, region)
                                     : RegionRun<T>::scratch_bytes(direction, region, ends);
}
template std::size_t region_scratch_bytes(const VoxelDirection<float>&, const Region&, const RegionEnds<float>&);
template std::size_t region_scratch_bytes(const VoxelDirection<double>&, const Region&, const RegionEnds<double>&);

template <class T>
void run_region(const VoxelDirection<T>& direction, const Region& region, const RegionEnds<T>& ends, const T* weights,
                std::pmr::memory_resource* memory) {
  if (runs_lines(direction, ends)) {
    run_lines(direction, region, ends, weights, memory);
    return;
  }
  RegionRun<T>(direction, region, ends, weights, memory).run();
}
template void run_region(const VoxelDirection<float>&, const Region&, const RegionEnds<float>&, const float*,
                         std::pmr::memory_resource*);
template void run_region(const VoxelDirection<double>&, const Region&, const RegionEnds<double>&, const double*,
                         std::pmr::memory_resource*);

}  // namespace convolume::conv
