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

/// Limit for the weights that a region transposes at once. They must stay in the L2 beside the data that the region
/// reads and writes.
constexpr index_t most_transposed_bytes = 256 << 10;

template <class T>
class RegionRun {
 public:
  RegionRun(const VoxelDirection<T>& d, const Region& region, const DirectionTensors<T>& tensors, const T* weights,
            std::pmr::memory_resource* memory)
      : d_(d),
        region_(region),
        tensors_(tensors),
        weights_(weights),
        window_(d.map.window(region.box)),
        source_in_place_(source_in_place(d, window_, tensors)),
        target_in_place_(target_in_place(d, tensors)),
        non_temporal_(target_in_place_ && written_once() && writes_non_temporal(tensors.target, d.non_temporal_from)),
        scratch_(memory, scratch_bytes(d, region, tensors)) {
    if (!source_in_place_) staged_source_ = take(staged_blocks(d, window_, tensors));
    if (!target_in_place_) staged_target_ = take(region.columns * volume(region.box));
    row_ = take(std::max(window_.extent().x, region.box.extent().x));
    bias_ = take(region.columns);
    if (d.transposes_weights) exchanged_ = take(region.columns * exchanged_column(d) / block);
    const PassCount most = count_passes(d, region);
    passes_ = scratch_.template take<Pass>(bytes_of<Pass>(most.passes));
    steps_ = scratch_.template take<DirectStep>(bytes_of<DirectStep>(most.steps));
  }

  static std::size_t scratch_bytes(const VoxelDirection<T>& d, const Region& region,
                                   const DirectionTensors<T>& tensors) {
    const Box window = d.map.window(region.box);
    index_t blocks = std::max(window.extent().x, region.box.extent().x) + region.columns;
    if (!source_in_place(d, window, tensors)) blocks += staged_blocks(d, window, tensors);
    if (!target_in_place(d, tensors)) blocks += region.columns * volume(region.box);
    if (d.transposes_weights) blocks += region.columns * exchanged_column(d) / block;
    const PassCount most = count_passes(d, region);
    return static_cast<std::size_t>(blocks) * 64 + bytes_of<Pass>(most.passes) + bytes_of<DirectStep>(most.steps);
  }

  void run() {
    fill_bias();
    const BlockedBox<T> target = target_box();
    for (index_t first = 0; first < d_.weights.term_blocks(); first += d_.group) {
      const index_t blocks = std::min(d_.group, d_.weights.term_blocks() - first);
      const BlockedBox<const T> source = source_box(first, blocks);
      // The last group can have fewer blocks, and its last block can have fewer channels. Then the passes are
      // different.
      const bool whole = blocks == d_.group && (first + blocks) * block <= d_.weights.terms;
      if (first == 0 || !whole) list_passes(first, blocks, source, target);
      const T* weights = weights_of(first, blocks);
      for (index_t i = 0; i < pass_count_; ++i) run_pass(passes_[i], first, weights, source, target);
    }
    finish();
  }

 private:
  static constexpr index_t block = fft::tile_lanes<T>;

  /// Some taps of results that the same taps reach. Registers hold the sum over these taps before it is added to
  /// memory.
  struct Pass {
    std::ptrdiff_t source, target;  // offsets of the first result, from the beginnings of both boxes
    Extent3 count;
    const DirectStep* steps;
    index_t step_count;
    bool starts;  // no other taps of these blocks come before
  };
  /// Upper limits for the passes of a group of blocks, and for the steps of all these passes.
  struct PassCount {
    index_t passes = 0, steps = 0;
  };
  static PassCount count_passes(const VoxelDirection<T>& d, const Region& region) {
    PassCount most;
    for (const DirectPhase& phase : d.map.phases()) {
      const index_t steps = d.group * static_cast<index_t>(phase.taps.size());
      d.map.for_each_equal_run(phase, region.box, [&](const Extent3&, const Extent3&) {
        most.passes += std::max<index_t>(1, (steps + steps_per_pass - 1) / steps_per_pass);
        most.steps += steps;
      });
    }
    return most;
  }
  /// Returns the bytes that `count` items take in the scratch.
  template <class Item>
  static std::size_t bytes_of(index_t count) {
    return whole_lines(static_cast<std::size_t>(count) * sizeof(Item));
  }

  /// Returns the elements that are transposed at once for one column.
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
  static bool source_in_place(const VoxelDirection<T>& d, const Box& window, const DirectionTensors<T>& tensors) {
    const Extent3& e = tensors.source.shape.extent;
    for (int axis = 0; axis < 3; ++axis) {
      if (window.begin[axis] < 0 || window.end[axis] > e[axis]) return false;
    }
    return (d.source_layout == Layout::blocked && tensors.gradient == nullptr) || reads_rows(d, tensors);
  }
  /// Returns whether the source is read as rows of its only channel. In channel blocks the rows would take up to
  /// sixteen times as much memory.
  static bool reads_rows(const VoxelDirection<T>& d, const DirectionTensors<T>& tensors) {
    return d.weights.terms == 1 && d.source_layout == Layout::plain && tensors.gradient == nullptr;
  }
  /// Returns the size of the staged source in units of 64 bytes.
  static index_t staged_blocks(const VoxelDirection<T>& d, const Box& window, const DirectionTensors<T>& tensors) {
    return reads_rows(d, tensors) ? (volume(window) + block - 1) / block : d.group * volume(window);
  }
  static bool target_in_place(const VoxelDirection<T>& d, const DirectionTensors<T>& tensors) {
    return d.target_layout == Layout::blocked && !tensors.add;
  }

  /// Returns whether one pass sums all taps and channels, and nothing remains to be done to the result.
  bool written_once() const {
    const bool one_pass = d_.group * d_.weights.taps <= steps_per_pass && d_.group == d_.weights.term_blocks();
    return one_pass && tensors_.activation.kind == Activation::Kind::none && d_.weights.lanes % block == 0;
  }
  /// Returns whether a tap reads padding for this result of a row.
  bool is_padding(const DirectTap& tap, const Extent3& base, index_t result) const {
    const index_t x = base.x + tap.offset.x + result * d_.map.source_step().x;
    return x < 0 || x >= tensors_.source.shape.extent.x;
  }

  void fill_bias() {
    std::fill_n(bias_, region_.columns * block, T{0});
    if (!tensors_.bias) return;
    const index_t first = region_.first_column * block;
    const index_t count = std::min(region_.columns * block, d_.weights.lanes - first);
    for (index_t i = 0; i < count; ++i) bias_[i] = tensors_.bias(0, first + i, 0, 0, 0);
  }

  BlockedBox<T> target_box() const {
    if (!target_in_place_) {
      return {staged_target_, region_.box.begin, dense(region_.box.extent()), volume(region_.box) * block};
    }
    const auto view = block_of(tensors_.target, Layout::blocked, region_.sample, region_.first_column * block);
    return {view.data, {0, 0, 0}, strides_of(tensors_.target), tensors_.target.stride[1]};
  }

  /// Returns the window of the only channel. Its voxels lie side by side; voxels outside of the tensor are zero.
  BlockedBox<const T> row_box() const {
    const View<const T>& from = tensors_.source;
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

  /// Returns the channel blocks [first, first + blocks) of the source's window.
  BlockedBox<const T> source_box(index_t first, index_t blocks) const {
    if (reads_rows(d_, tensors_)) return row_box();
    if (source_in_place_) {
      const auto view = block_of(tensors_.source, Layout::blocked, region_.sample, first * block);
      return {view.data, {0, 0, 0}, strides_of(tensors_.source), tensors_.source.stride[1]};
    }
    const index_t step = volume(window_) * block;
    for (index_t i = 0; i < blocks; ++i) {
      BoxSource<T> box{.block = block_of(tensors_.source, d_.source_layout, region_.sample, (first + i) * block),
                       .origin = window_.begin,
                       .extent = window_.extent(),
                       .activation = tensors_.gradient};
      if (tensors_.gradient != nullptr) {
        box.y = block_of(tensors_.y, d_.source_layout, region_.sample, (first + i) * block);
      }
      d_.boxes.load(box, staged_source_ + i * step, row_);
    }
    return {staged_source_, window_.begin, dense(window_.extent()), step};
  }

  /// Adds all passes of results that the same taps reach. If no tap reaches them, one pass without steps sets them to
  /// the bias.
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
    index_t b = taps > 0 ? 0 : blocks, t = 0;  // channel block and tap of the next step
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

  /// Lists the passes for `blocks` channel blocks of the source from `first` on. The same list serves other groups with
  /// the same number of full blocks.
  void list_passes(index_t first, index_t blocks, const BlockedBox<const T>& source, const BlockedBox<T>& target) {
    pass_count_ = 0;
    DirectStep* step = steps_;
    for (const DirectPhase& phase : d_.map.phases()) {
      d_.map.for_each_equal_run(phase, region_.box, [&](const Extent3& begin, const Extent3& count) {
        list_alike(phase, begin, count, first, blocks, source, target, step);
      });
    }
  }

  /// Returns the weights of the blocks [first, first + blocks) for this region's columns.
  const T* weights_of(index_t first, index_t blocks) const {
    if (!d_.transposes_weights) return weights_ + d_.weights.offset(region_.first_column, first, 0);
    for (index_t i = 0; i < region_.columns; ++i) {
      T* to = exchanged_ + i * exchanged_column(d_);
      for (index_t b = 0; b < blocks; ++b, to += d_.weights.taps * d_.weights.square) {
        d_.squares.transpose(not_exchanged(first + b, i), d_.weights.taps, false, to);
      }
    }
    return exchanged_;
  }
  const T* not_exchanged(index_t term_block, index_t column) const {
    const WeightBlocks<T> other{.terms = d_.weights.lanes, .lanes = d_.weights.terms, .taps = d_.weights.taps};
    return weights_ + other.offset(term_block, region_.first_column + column, 0);
  }

  /// Returns the distance from `weights`, which belong to the blocks from `first` on, to the weights that are read
  /// next, for prefetching. These are the weights of the next group of blocks, or, after the last group, of the next
  /// two columns. 0 means none.
  std::ptrdiff_t next_weights(index_t first, const T* weights) const {
    const bool last = first + d_.group >= d_.weights.term_blocks();
    // If several blocks are transposed at once, the order of the transposed weights differs from that of the packed
    // weights.
    if (d_.transposes_weights) return last || d_.group > 1 ? 0 : distance(weights, not_exchanged(first + 1, 0));
    if (!last) return d_.weights.offset(0, d_.group, 0);
    const bool end = region_.first_column + region_.columns >= d_.weights.lane_blocks();
    return end ? 0 : 2 * d_.weights.column_step() - d_.weights.offset(0, first, 0);
  }
  /// Returns the distance between elements of different arrays.
  static std::ptrdiff_t distance(const T* from, const T* to) {
    return (reinterpret_cast<std::intptr_t>(to) - reinterpret_cast<std::intptr_t>(from)) /
           static_cast<std::ptrdiff_t>(sizeof(T));
  }

  void run_pass(const Pass& pass, index_t first, const T* weights, const BlockedBox<const T>& source,
                const BlockedBox<T>& target) const {
    const bool add = first > 0 || !pass.starts;
    if (add && pass.step_count == 0) return;
    d_.products.voxels(
        VoxelProduct<T>{.source = source.data + pass.source,
                        .source_strides = source.strides * d_.map.source_step(),
                        .steps = pass.steps,
                        .step_count = pass.step_count,
                        .weights = weights,
                        .weights_column = d_.transposes_weights ? exchanged_column(d_) : d_.weights.column_step(),
                        .weights_next = next_weights(first, weights),
                        .target = target.data + pass.target,
                        .target_strides = target.strides * d_.map.target_step(),
                        .target_column = target.block,
                        .bias = bias_,
                        .count = pass.count,
                        .columns = region_.columns,
                        .add = add,
                        .non_temporal = non_temporal_});
  }

  void finish() {
    for (index_t i = 0; i < region_.columns; ++i) {
      const BoxTarget<T> box{
          .block = block_of(tensors_.target, d_.target_layout, region_.sample, (region_.first_column + i) * block),
          .origin = region_.box.begin,
          .extent = region_.box.extent(),
          .activation = tensors_.activation,
          .add = tensors_.add};
      // Results that were computed in place may still need the activation, and zeros in lanes without a channel.
      const bool complete = tensors_.activation.kind == Activation::Kind::none && box.block.channels == block;
      if (target_in_place_ && complete) continue;
      target_in_place_ ? d_.boxes.activate(box)
                       : d_.boxes.store(staged_target_ + i * volume(region_.box) * block, box, row_);
    }
  }

  const VoxelDirection<T>& d_;
  const Region& region_;
  const DirectionTensors<T>& tensors_;
  const T* weights_;
  Box window_;
  bool source_in_place_, target_in_place_, non_temporal_;
  Scratch scratch_;
  T *staged_source_ = nullptr, *staged_target_ = nullptr, *row_ = nullptr, *bias_ = nullptr, *exchanged_ = nullptr;
  Pass* passes_ = nullptr;
  DirectStep* steps_ = nullptr;
  index_t pass_count_ = 0;
};

/// Returns the number of channels that a region computes.
template <class T>
index_t results_of(const VoxelDirection<T>& d, const Region& region) {
  return std::min(region.columns * d.weights.block, d.weights.lanes - region.first_column * d.weights.block);
}

/// Returns the bytes of the bias values of a region that is computed as lines.
template <class T>
std::size_t bias_bytes(const VoxelDirection<T>& d, const Region& region) {
  return static_cast<std::size_t>(results_of(d, region)) * sizeof(T);
}

template <class T>
bool runs_lines(const VoxelDirection<T>& d, const DirectionTensors<T>& tensors) {
  return d.lines && tensors.gradient == nullptr;
}

/// Computes a region as products of lines. A line is a row, or all rows of a plane if they lie side by side in both
/// tensors.
template <class T>
void run_lines(const VoxelDirection<T>& d, const Region& region, const DirectionTensors<T>& tensors, const T* weights,
               std::pmr::memory_resource* memory) {
  const index_t first = region.first_column * d.weights.block, results = results_of(d, region);
  Scratch scratch(memory, bias_bytes(d, region));
  T* bias = scratch.take<T>(bias_bytes(d, region));
  for (index_t i = 0; i < results; ++i) bias[i] = tensors.bias ? tensors.bias(0, first + i, 0, 0, 0) : T{0};
  const Extent3 extent = region.box.extent();
  const bool joined = tensors.source.stride[3] == extent.x && tensors.target.stride[3] == extent.x;
  const index_t lines = joined ? 1 : extent.y, voxels = joined ? extent.y * extent.x : extent.x;
  for (index_t z = region.box.begin.z; z < region.box.end.z; ++z) {
    for (index_t line = 0; line < lines; ++line) {
      const index_t y = region.box.begin.y + line;
      T* target = &tensors.target(region.sample, first, z, y, 0);
      d.line_products.multiply(LineProduct<T>{.source = &tensors.source(region.sample, 0, z, y, 0),
                                              .source_channel = tensors.source.stride[1],
                                              .weights = weights + region.first_column * d.weights.column_step(),
                                              .weights_column = d.weights.column_step(),
                                              .target = target,
                                              .target_channel = tensors.target.stride[1],
                                              .bias = bias,
                                              .voxels = voxels,
                                              .terms = d.weights.terms,
                                              .results = results,
                                              .add = tensors.add});
      for (index_t i = 0; i < results && tensors.activation.kind != Activation::Kind::none; ++i) {
        T* channel = target + i * tensors.target.stride[1];
        d.activations.forward(tensors.activation, channel, channel, voxels);
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
  const index_t transposed_squares =
      grid.columns * group * weights.taps * weights.square * static_cast<index_t>(sizeof(T));
  transposes_weights = direction == plan::Direction::backward_data && p.batch * grid.per_sample() == 1 && !lines &&
                       transposed_squares <= most_transposed_bytes;
}

template struct VoxelDirection<float>;
template struct VoxelDirection<double>;

template <class T>
std::size_t region_scratch_bytes(const VoxelDirection<T>& direction, const Region& region,
                                 const DirectionTensors<T>& tensors) {
  return runs_lines(direction, tensors) ? bias_bytes(direction, region)
                                        : RegionRun<T>::scratch_bytes(direction, region, tensors);
}
template std::size_t region_scratch_bytes(const VoxelDirection<float>&, const Region&, const DirectionTensors<float>&);
template std::size_t region_scratch_bytes(const VoxelDirection<double>&, const Region&,
                                          const DirectionTensors<double>&);

template <class T>
void run_region(const VoxelDirection<T>& direction, const Region& region, const DirectionTensors<T>& tensors,
                const T* weights, std::pmr::memory_resource* memory) {
  if (runs_lines(direction, tensors)) {
    run_lines(direction, region, tensors, weights, memory);
    return;
  }
  RegionRun<T>(direction, region, tensors, weights, memory).run();
}
template void run_region(const VoxelDirection<float>&, const Region&, const DirectionTensors<float>&, const float*,
                         std::pmr::memory_resource*);
template void run_region(const VoxelDirection<double>&, const Region&, const DirectionTensors<double>&, const double*,
                         std::pmr::memory_resource*);

}  // namespace convolume::conv
