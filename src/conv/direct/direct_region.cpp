#include "conv/direct/direct_region.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "conv/caches/cache_lines.hpp"
#include "conv/caches/scratch.hpp"
#include "conv/direct/line_region.hpp"
#include "conv/direct/pass_lists.hpp"
#include "conv/direct/patch_region.hpp"
#include "conv/tensor_io/block_box.hpp"
#include "ops/activation.hpp"
#include "plan/sides.hpp"

namespace convolume::conv {
namespace {

using plan::Dim;

/// Limit for the weights that a region transposes or packs at once. They must stay in the L2 beside the data that the
/// region reads and writes.
constexpr index_t most_held_bytes = 256 << 10;

template <class T>
class RegionRun {
 public:
  RegionRun(const VoxelDirection<T>& d, const Region& region, const DirectionTensors<T>& tensors,
            const RegionWeights<T>& weights, std::pmr::memory_resource* memory)
      : d_(d),
        region_(region),
        tensors_(tensors),
        weights_(weights),
        packs_(weights.packed == nullptr),
        window_(d.map.window(region.box)),
        reads_rows_(reads_rows(d, tensors)),
        source_in_place_(source_in_place(d, window_, tensors)),
        target_in_place_(target_in_place(d, tensors)),
        non_temporal_(target_in_place_ && written_once() && writes_non_temporal(tensors.target, d.non_temporal_from)),
        most_(PassLists<T>::count(d, region)),
        scratch_(memory, scratch_bytes(d, region, tensors, packs_, most_)),
        lists_(d, region, tensors.source.shape.extent, source_in_place_, reads_rows_, most_, scratch_) {
    if (!source_in_place_) staged_source_ = take(staged_blocks(d, window_, tensors));
    if (!target_in_place_) staged_target_ = take(region.samples * region.columns * volume(region.box));
    row_ = take(std::max(window_.extent().x, region.box.extent().x));
    bias_ = take(region.columns);
    if (holds_weights(d, packs_)) own_weights_ = take(region.columns * held_column(d) / block);
    if (packs_) pack_scratch_ = scratch_.template take<T>(pack_scratch_bytes(d.weights));
  }

  static std::size_t scratch_bytes(const VoxelDirection<T>& d, const Region& region, const DirectionTensors<T>& tensors,
                                   bool packs) {
    return scratch_bytes(d, region, tensors, packs, PassLists<T>::count(d, region));
  }

  void run() {
    fill_bias();
    ranges_[Dim::n] = {region_.sample, region_.sample + region_.samples};
    ranges_[Dim::k] = {0, region_.columns};
    ranges_[Dim::c] = {0, d_.weights.term_blocks()};
    constexpr std::array voxels{Dim::z, Dim::y, Dim::x}, taps{Dim::kz, Dim::ky, Dim::kx};
    const Extent3 results = region_.box.extent(), step = d_.map.target_step();
    for (int axis = 0; axis < 3; ++axis) {
      const auto i = static_cast<std::size_t>(axis);
      ranges_[voxels[i]] = {0, (results[axis] + step[axis] - 1) / step[axis]};
      ranges_[taps[i]] = {0, d_.nest.taps[axis]};
    }
    walk(0);
    for (index_t i = 0; i < region_.samples; ++i) finish(region_.sample + i);
  }

 private:
  static constexpr index_t block = fft::tile_lanes<T>;

  static std::size_t scratch_bytes(const VoxelDirection<T>& d, const Region& region, const DirectionTensors<T>& tensors,
                                   bool packs, const typename PassLists<T>::Count& most) {
    const Box window = d.map.window(region.box);
    index_t blocks = std::max(window.extent().x, region.box.extent().x) + region.columns;
    if (!source_in_place(d, window, tensors)) blocks += staged_blocks(d, window, tensors);
    if (!target_in_place(d, tensors)) blocks += region.samples * region.columns * volume(region.box);
    if (holds_weights(d, packs)) blocks += region.columns * held_column(d) / block;
    const std::size_t pack_bytes = packs ? pack_scratch_bytes(d.weights) : 0;
    return static_cast<std::size_t>(blocks) * 64 + pack_bytes + PassLists<T>::scratch_bytes(d, most);
  }
  /// Returns whether a region has its own copy of the weights of the term blocks that it holds.
  static bool holds_weights(const VoxelDirection<T>& d, bool packs) { return packs || d.transposes_weights; }
  /// Returns the elements of this copy for one column.
  static index_t held_column(const VoxelDirection<T>& d) {
    return d.nest.held_blocks * d.weights.taps * d.weights.square();
  }

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
    const bool blocked = d.source_layout == Layout::blocked && tensors.gradient == nullptr && !crowds_sets(d, tensors);
    if (blocked && d.leaves_out_padding) return true;
    const Extent3& e = tensors.source.shape.extent;
    for (int axis = 0; axis < 3; ++axis) {
      if (window.begin[axis] < 0 || window.end[axis] > e[axis]) return false;
    }
    return blocked || reads_rows(d, tensors);
  }
  /// Returns whether a product reads samples whose distance is a multiple of most of an L1's way. The cache would hold
  /// few of them at a time.
  static bool crowds_sets(const VoxelDirection<T>& d, const DirectionTensors<T>& tensors) {
    constexpr index_t crowding_bytes = 2048;
    const Shape5& shape = tensors.source.shape;
    const index_t sample = ceil_div(shape.c, block) * shape.extent.volume() * 64;
    return d.nest.rows_of_samples && sample % crowding_bytes == 0;
  }
  /// Returns whether the source is read as rows of its channels. If there is one channel, channel blocks would take up
  /// to sixteen times as much memory.
  static bool reads_rows(const VoxelDirection<T>& d, const DirectionTensors<T>& tensors) {
    return (d.weights.terms == 1 || d.tap_rows_only) && d.source_layout == Layout::plain &&
           tensors.gradient == nullptr && !d.nest.rows_of_samples;
  }
  /// Returns the size of the staged source in units of 64 bytes.
  static index_t staged_blocks(const VoxelDirection<T>& d, const Box& window, const DirectionTensors<T>& tensors) {
    if (d.nest.rows_of_samples) return d.nest.held_samples * staged_sample(d, window);
    if (!reads_rows(d, tensors)) return d.nest.held_blocks * volume(window);
    return (std::min(d.weights.terms, d.nest.held_blocks * block) * volume(window) + block - 1) / block;
  }
  /// Returns the distance between staged samples that a product reads together, in units of 64 bytes. It is odd, so
  /// that they lie in different sets of a cache.
  static index_t staged_sample(const VoxelDirection<T>& d, const Box& window) {
    return d.nest.held_blocks * volume(window) | 1;
  }
  static bool target_in_place(const VoxelDirection<T>& d, const DirectionTensors<T>& tensors) {
    return d.target_layout == Layout::blocked && !tensors.add;
  }

  /// Returns whether one pass sums all taps and channels, and nothing remains to be done to the result.
  bool written_once() const { return d_.nest.sums_once && tensors_.activation.kind == Activation::Kind::none; }
  void fill_bias() {
    if (!tensors_.bias) return;  // products then have none
    std::fill_n(bias_, region_.columns * block, T{0});
    const index_t first = region_.first_column * block;
    const index_t count = std::min(region_.columns * block, d_.weights.lanes - first);
    for (index_t i = 0; i < count; ++i) bias_[i] = tensors_.bias(0, first + i, 0, 0, 0);
  }

  /// Returns the staged results of a sample.
  T* staged_target(index_t sample) const {
    return staged_target_ + (sample - region_.sample) * region_.columns * volume(region_.box) * block;
  }
  BlockedBox<T> target_box(index_t sample) const {
    if (!target_in_place_) {
      return {staged_target(sample), region_.box.begin, dense(region_.box.extent()), volume(region_.box) * block};
    }
    const auto view = block_of(tensors_.target, Layout::blocked, sample, region_.first_column * block);
    return {view.data, {0, 0, 0}, strides_of(tensors_.target), tensors_.target.stride[1]};
  }

  /// Returns the window of the channels in the blocks [first, first + blocks), each as rows whose voxels lie side by
  /// side. Voxels outside of the tensor are zero.
  BlockedBox<const T> row_box(index_t sample, index_t first, index_t blocks) {
    const View<const T>& from = tensors_.source;
    if (source_in_place_) {
      source_term_ = from.stride[1];
      return {
          &from(sample, first * block, 0, 0, 0), {0, 0, 0}, {1, from.stride[3], from.stride[2]}, block * source_term_};
    }
    const index_t channels = std::min(blocks * block, d_.weights.terms - first * block);
    const Extent3 e = window_.extent();
    source_term_ = volume(window_);
    for (index_t c = 0; c < channels; ++c) copy_rows(sample, first * block + c, staged_source_ + c * source_term_);
    return {staged_source_, window_.begin, {1, e.x, e.y * e.x}, block * source_term_};
  }
  /// Copies the window of a channel.
  void copy_rows(index_t sample, index_t channel, T* to) const {
    const View<const T>& from = tensors_.source;
    const Extent3 e = window_.extent(), all = from.shape.extent;
    const index_t begin = std::clamp<index_t>(-window_.begin.x, 0, e.x);
    const index_t end = std::clamp<index_t>(all.x - window_.begin.x, begin, e.x);
    for (index_t z = window_.begin.z; z < window_.end.z; ++z) {
      for (index_t y = window_.begin.y; y < window_.end.y; ++y, to += e.x) {
        const bool inside = z >= 0 && z < all.z && y >= 0 && y < all.y && begin < end;
        std::fill_n(to, inside ? begin : e.x, T{0});
        if (!inside) continue;
        std::copy_n(&from(sample, channel, z, y, window_.begin.x + begin), end - begin, to + begin);
        std::fill_n(to + end, e.x - end, T{0});
      }
    }
  }

  /// Returns the channel blocks [first, first + blocks) of the source's window.
  BlockedBox<const T> source_box(index_t sample, index_t first, index_t blocks) {
    if (reads_rows_) return row_box(sample, first, blocks);
    if (source_in_place_) {
      const auto view = block_of(tensors_.source, Layout::blocked, sample, first * block);
      return {view.data, {0, 0, 0}, strides_of(tensors_.source), tensors_.source.stride[1]};
    }
    stage(sample, first, blocks, staged_source_);
    return {staged_source_, window_.begin, dense(window_.extent()), volume(window_) * block};
  }
  /// Copies the window of the channel blocks [first, first + blocks) of a sample.
  void stage(index_t sample, index_t first, index_t blocks, T* to) {
    const index_t step = volume(window_) * block;
    for (index_t i = 0; i < blocks; ++i) {
      BoxSource<T> box{.block = block_of(tensors_.source, d_.source_layout, sample, (first + i) * block),
                       .origin = window_.begin,
                       .extent = window_.extent(),
                       .activation = tensors_.gradient};
      if (tensors_.gradient != nullptr) {
        box.y = block_of(tensors_.y, d_.source_layout, sample, (first + i) * block);
      }
      d_.boxes.load(box, to + i * step, row_);
    }
  }

  /// Runs the loops of the nest from `level` on.
  void walk(std::size_t level) {
    if (level == d_.nest.walk.size()) {
      multiply();
      return;
    }
    const TaskLoop& loop = d_.nest.walk[level];
    LoopRange& range = ranges_[loop.dim];
    const LoopRange all = range;
    for (index_t i = all.begin; i < all.end; i += loop.step) {
      range = {i, std::min(all.end, i + loop.step)};
      walk(level + 1);
    }
    range = all;
  }

  /// Runs the products of the current ranges.
  void multiply() {
    hold();
    const PassList& list = lists_.list(ranges_, source_, target_);
    const index_t first = ranges_[Dim::c].begin - held_first_;
    const T* weights =
        held_weights_ + ranges_[Dim::k].begin * weights_column() + first * d_.weights.taps * d_.weights.square();
    const bool starts = ranges_[Dim::c].begin == 0 && ranges_.is_first_tap_tile();
    for (index_t i = 0; i < list.count; ++i) run_pass(list.passes[i], first, weights, !starts);
  }

  std::ptrdiff_t weights_column() const { return own_weights_ != nullptr ? held_column(d_) : d_.weights.column_step(); }

  /// Makes the samples and the term blocks of the current ranges available. Samples that a product computes together
  /// are available together.
  void hold() {
    const LoopRange& samples = ranges_[Dim::n];
    const index_t first = ranges_[Dim::c].begin / d_.nest.held_blocks * d_.nest.held_blocks;
    if (samples.begin == sample_ && first == held_first_) return;
    const index_t blocks = std::min(d_.nest.held_blocks, d_.weights.term_blocks() - first);
    if (samples.begin != sample_) target_ = target_box(samples.begin);
    if (first != held_first_) held_weights_ = weights_of(first, blocks);
    source_ = source_box(samples.begin, first, blocks);
    if (d_.nest.rows_of_samples && !source_in_place_) {
      for (index_t i = 1; i < samples.size(); ++i) {
        stage(samples.begin + i, first, blocks, staged_source_ + i * source_sample());
      }
    }
    sample_ = samples.begin;
    held_first_ = first;
  }
  /// Returns the distance between the samples that a product reads together.
  std::ptrdiff_t source_sample() const {
    return source_in_place_ ? tensors_.source.stride[0] : staged_sample(d_, window_) * block;
  }
  /// Returns the distance between the samples of its results.
  std::ptrdiff_t target_sample() const {
    return target_in_place_ ? tensors_.target.stride[0] : region_.columns * volume(region_.box) * block;
  }

  /// Returns the weights of the blocks [first, first + blocks) for this region's columns.
  const T* weights_of(index_t first, index_t blocks) const {
    const WeightBlocks<T>& result = d_.weights;
    if (own_weights_ == nullptr) return weights_.packed + result.offset(region_.first_column, first, 0);
    for (index_t i = 0; i < region_.columns; ++i) {
      T* to = own_weights_ + i * held_column(d_);
      for (index_t b = 0; b < blocks; ++b, to += result.taps * result.square()) {
        if (packs_) {
          d_.squares.pack(weights_.tensor, result, region_.first_column + i, first + b, false, to, pack_scratch_);
        } else {
          d_.squares.transpose(packed_weights(first + b, i), packed_layout().square_terms(), result.square_terms(),
                               result.taps, false, to);
        }
      }
    }
    return own_weights_;
  }
  /// Returns the layout of the packed weights if they have to be transposed.
  WeightBlocks<T> packed_layout() const {
    return {.terms = d_.weights.lanes, .lanes = d_.weights.terms, .taps = d_.weights.taps};
  }
  const T* packed_weights(index_t term_block, index_t column) const {
    return weights_.packed + packed_layout().offset(term_block, region_.first_column + column, 0);
  }

  /// Returns the distance from the weights of the current products to the weights that are read next, for prefetching.
  /// These are the weights of the next term blocks, or, after the last ones, of the region's next columns. 0 means
  /// none.
  std::ptrdiff_t next_weights(const T* weights) const {
    if (packs_) return 0;
    const LoopRange& terms = ranges_[Dim::c];
    const bool last = terms.end >= d_.weights.term_blocks();
    // If several blocks are transposed at once, or if squares have other numbers of terms, the order of the transposed
    // weights differs from that of the packed weights.
    if (d_.transposes_weights) {
      const bool other_order = d_.nest.held_blocks > 1 || packed_layout().square() != d_.weights.square();
      return last || other_order ? 0 : distance(weights, packed_weights(terms.begin + 1, 0));
    }
    if (!last) return d_.weights.offset(0, terms.size(), 0);
    const bool end = ranges_[Dim::k].end >= region_.columns;
    const index_t columns = std::max<index_t>(2, d_.nest.product_columns);
    return end ? 0 : columns * d_.weights.column_step() - d_.weights.offset(0, terms.begin, 0);
  }
  /// Returns the distance between elements of different arrays.
  static std::ptrdiff_t distance(const T* from, const T* to) {
    return (reinterpret_cast<std::intptr_t>(to) - reinterpret_cast<std::intptr_t>(from)) /
           static_cast<std::ptrdiff_t>(sizeof(T));
  }

  /// `first` counts term blocks from the first one that is held.
  void run_pass(const Pass& pass, index_t first, const T* weights, bool add) const {
    if (add && pass.step_count == 0) return;
    const LoopRange& columns = ranges_[Dim::k];
    BoxStrides strides = source_.strides * d_.map.source_step(), to = target_.strides * d_.map.target_step();
    Extent3 count = pass.count;
    if (d_.nest.rows_of_samples) {  // all passes are of one voxel
      strides.voxel = source_sample();
      to.voxel = target_sample();
      count.x = ranges_[Dim::n].size();
    }
    const auto multiply_voxels = pass.row_taps != 1      ? d_.tap_rows
                                 : strides.voxel < block ? d_.taps_of_channel
                                                         : d_.single_taps;
    multiply_voxels(VoxelProduct<T>{.source = source_.data + pass.source + first * source_.block,
                                    .source_strides = strides,
                                    .steps = pass.steps,
                                    .step_count = pass.step_count,
                                    .neighbours = pass.neighbours,
                                    .row_taps = pass.row_taps,
                                    .source_tap = pass.source_tap,
                                    .weights_tap = pass.weights_tap,
                                    .fully_padded = pass.fully_padded,
                                    .source_term = source_term_,
                                    .weights = weights,
                                    .weights_column = weights_column(),
                                    .weights_next = next_weights(weights),
                                    .target = target_.data + pass.target + columns.begin * target_.block,
                                    .target_strides = to,
                                    .target_column = target_.block,
                                    .bias = tensors_.bias ? bias_ + columns.begin * block : nullptr,
                                    .count = count,
                                    .columns = columns.size(),
                                    .together = d_.nest.product_columns,
                                    .lanes = d_.weights.lanes - (region_.first_column + columns.begin) * block,
                                    .add = add,
                                    .non_temporal = non_temporal_});
  }

  void finish(index_t sample) {
    for (index_t i = 0; i < region_.columns; ++i) {
      const BoxTarget<T> box{
          .block = block_of(tensors_.target, d_.target_layout, sample, (region_.first_column + i) * block),
          .origin = region_.box.begin,
          .extent = region_.box.extent(),
          .activation = tensors_.activation,
          .add = tensors_.add,
          .non_temporal = !target_in_place_ && d_.target_layout == Layout::plain && !tensors_.add &&
                          writes_non_temporal(tensors_.target, d_.non_temporal_from)};
      // Results that were computed in place may still need the activation.
      if (target_in_place_ && tensors_.activation.kind == Activation::Kind::none) continue;
      target_in_place_ ? d_.boxes.activate(box)
                       : d_.boxes.store(staged_target(sample) + i * volume(region_.box) * block, box, row_);
    }
  }

  const VoxelDirection<T>& d_;
  const Region& region_;
  const DirectionTensors<T>& tensors_;
  const RegionWeights<T>& weights_;
  bool packs_;
  Box window_;
  bool reads_rows_, source_in_place_, target_in_place_, non_temporal_;
  typename PassLists<T>::Count most_;
  Scratch scratch_;
  PassLists<T> lists_;
  T *staged_source_ = nullptr, *staged_target_ = nullptr, *row_ = nullptr, *bias_ = nullptr;
  T *own_weights_ = nullptr, *pack_scratch_ = nullptr;
  LoopRanges ranges_;  // of the current products
  index_t sample_ = -1, held_first_ = -1;
  std::ptrdiff_t source_term_ = 1;
  BlockedBox<const T> source_{};
  BlockedBox<T> target_{};
  const T* held_weights_ = nullptr;
};

template <class T>
bool are_lines(const VoxelDirection<T>& d, const ConvProblem& p) {
  const Box all{{0, 0, 0}, d.map.domain()};
  const Box window = d.map.window(all);
  const bool lines = d.source_layout == Layout::plain || d.weights.lanes <= most_blocked_results;
  return lines && d.target_layout == Layout::plain && d.weights.taps == 1 && p.input == p.output() &&
         window.begin == all.begin && window.end == all.end && d.nest.sums_once && !d.nest.rows_of_samples;
}

/// Returns whether the outermost loop around products is the one over term blocks, if there is one.
bool reads_terms_once(const VoxelNest& nest) {
  const auto terms =
      std::find_if(nest.walk.begin(), nest.walk.end(), [](const TaskLoop& l) { return l.dim == Dim::c; });
  return terms == nest.walk.end() || terms == nest.walk.begin();
}

/// Returns the packed weights of a problem that is not transposed.
template <class T>
WeightBlocks<T> weights_of(const ConvProblem& p, bool forward) {
  return {.terms = forward ? p.in_channels : p.out_channels,
          .lanes = forward ? p.out_channels : p.in_channels,
          .taps = p.kernel.volume()};
}

}  // namespace

template <class T>
VoxelDirection<T>::VoxelDirection(const ConvProblem& problem, plan::Direction direction, const plan::LoopNest& given) {
  const plan::Sides sides(problem);
  const ConvProblem& p = sides.convolution();
  const bool forward = sides.direction(direction) == plan::Direction::forward;
  map = DirectMap(p, sides.direction(direction));
  weights = weights_of<T>(p, forward);
  source_layout = forward ? p.x_layout : p.y_layout;
  target_layout = forward ? p.y_layout : p.x_layout;
  nest = compile_voxel_nest(given, problem, direction, map);
  leaves_out_padding = map.pads_one_result() || nest.rows_of_samples;
  step_orders = order_steps(nest, map);
  tap_rows_only = weights.lane_blocks() == 1 &&
                  std::all_of(step_orders.begin(), step_orders.end(), [](const std::vector<StepPlace>& order) {
                    return order.empty() || order.front().taps > 1;
                  });
  lines = are_lines(*this, p);
  patches = are_patches(*this) && !nest.rows_of_samples;
  const index_t held_squares =
      nest.grid.columns * nest.held_blocks * weights.taps * weights.square() * static_cast<index_t>(sizeof(T));
  const index_t regions = (p.batch + nest.samples - 1) / nest.samples * nest.grid.per_sample();
  const bool can_hold = regions == 1 && !lines && !patches && held_squares <= most_held_bytes;
  transposes_weights = !forward && can_hold;
  can_pack = can_hold && nest.grid.column_groups > 1 && weights.taps > 1 && reads_terms_once(nest);
  if (!lines) {
    PassLists<T>::check(*this,
                        {.samples = nest.samples, .box = nest.grid.box(0, map.domain()), .columns = nest.grid.columns});
  }
}

template struct VoxelDirection<float>;
template struct VoxelDirection<double>;

template <class T>
std::size_t region_scratch_bytes(const VoxelDirection<T>& direction, const Region& region,
                                 const DirectionTensors<T>& tensors, bool packs) {
  if (runs_lines(direction, tensors)) return line_scratch_bytes(direction, region);
  if (runs_patches(direction, tensors)) return patch_scratch_bytes(direction, tensors);
  return RegionRun<T>::scratch_bytes(direction, region, tensors, packs);
}
template std::size_t region_scratch_bytes(const VoxelDirection<float>&, const Region&, const DirectionTensors<float>&,
                                          bool);
template std::size_t region_scratch_bytes(const VoxelDirection<double>&, const Region&, const DirectionTensors<double>&,
                                          bool);

template <class T>
void run_region(const VoxelDirection<T>& direction, const Region& region, const DirectionTensors<T>& tensors,
                const RegionWeights<T>& weights, std::pmr::memory_resource* memory) {
  if (runs_lines(direction, tensors)) {
    run_lines(direction, region, tensors, weights.packed, memory);
    return;
  }
  if (runs_patches(direction, tensors)) {
    run_patches(direction, region, tensors, weights.packed, memory);
    return;
  }
  RegionRun<T>(direction, region, tensors, weights, memory).run();
}
template void run_region(const VoxelDirection<float>&, const Region&, const DirectionTensors<float>&,
                         const RegionWeights<float>&, std::pmr::memory_resource*);
template void run_region(const VoxelDirection<double>&, const Region&, const DirectionTensors<double>&,
                         const RegionWeights<double>&, std::pmr::memory_resource*);

}  // namespace convolume::conv
