#include "conv/depthwise/direct_depthwise.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "conv/caches/scratch.hpp"
#include "conv/tensor_io/block_box.hpp"

namespace convolume::conv {
namespace {

constexpr index_t box_bytes = 640 << 10;     // of the sources and results of a box, which fit into the L2
constexpr index_t task_products = 32 << 10;  // least number of vectors that a task multiplies, about ten microseconds
constexpr index_t tasks = 32;                // wanted number of tasks, if there is enough work
constexpr index_t piece_voxels = 160;        // of dy; their rows fit into the L1 beside the rows of x
constexpr index_t small_pass = 32;  // least number of taps in a pass, which small planes of the kernel fill together
constexpr index_t short_row = 6;

index_t volume(const Extent3& e) { return e.z * e.y * e.x; }
index_t blocks_of(const ConvProblem& p) {
  const index_t block = channel_block(p.type);
  return (p.in_channels + block - 1) / block;
}
/// Swaps X with a longer axis if rows are short, so that registers hold the sums of more voxels side by side.
void lengthen(Extent3& count, BoxStrides& a, BoxStrides& b) {
  if (count.x >= short_row) return;
  if (count.y > count.x && count.y >= count.z) {
    std::swap(count.x, count.y);
    std::swap(a.voxel, a.row);
    std::swap(b.voxel, b.row);
  } else if (count.z > count.x) {
    std::swap(count.x, count.z);
    std::swap(a.voxel, a.plane);
    std::swap(b.voxel, b.plane);
  }
}

/// Returns the planes and rows of a box that lie inside the tensor; there may be none. Padding along X stays, because
/// it is cheaper to multiply zeros than to handle the border columns separately.
Box clipped(Box box, const Extent3& extent) {
  for (int axis = 0; axis < 2; ++axis) {
    box.begin[axis] = std::clamp<index_t>(box.begin[axis], 0, extent[axis]);
    box.end[axis] = std::clamp<index_t>(box.end[axis], box.begin[axis], extent[axis]);
  }
  return box;
}

/// Reads the voxels of a box. A blocked box that lies inside the tensor along X is read in place. Otherwise the voxels
/// are staged in scratch, and are multiplied by the activation's gradient, if there is one.
template <class T>
class BoxReader {
 public:
  static constexpr index_t block = fft::tile_lanes<T>;

  BoxReader(const View<const T>& tensor, const Activation* gradient, const View<const T>& y)
      : tensor_(tensor), gradient_(gradient), y_(y) {}

  bool in_place(const Box& box) const {
    const bool there = box.begin.x >= 0 && box.end.x <= tensor_.shape.extent.x;
    return tensor_.layout == Layout::blocked && gradient_ == nullptr && there;
  }
  index_t blocks(const Box& box) const { return in_place(box) ? 0 : volume(box.extent()) + box.extent().x; }

  /// Returns the voxels of a box. If they are staged, `scratch` must hold blocks(box) * 64 bytes.
  BlockedBox<const T> read(const BoxKernels<T>& boxes, index_t sample, index_t channels, const Box& box,
                           T* scratch) const {
    const BlockView<const T> from = block_of(tensor_, tensor_.layout, sample, channels * block);
    if (in_place(box)) return {from.data, {0, 0, 0}, {block, tensor_.stride[3], tensor_.stride[2]}, 0};
    const Extent3 e = box.extent();
    BoxSource<T> source{.block = from, .origin = box.begin, .extent = e, .activation = gradient_};
    if (gradient_ != nullptr) source.y = block_of(y_, y_.layout, sample, channels * block);
    boxes.load(source, scratch, scratch + volume(e) * block);
    return {scratch, box.begin, {block, e.x * block, e.y * e.x * block}, 0};
  }

 private:
  View<const T> tensor_;
  const Activation* gradient_;
  View<const T> y_;
};

template <class T>
class BoxRun {
 public:
  BoxRun(const DepthwiseDirection<T>& d, const Region& region, const DirectionTensors<T>& tensors, const T* weights,
         std::pmr::memory_resource* memory)
      : d_(d),
        region_(region),
        tensors_(tensors),
        weights_(weights),
        reader_(tensors.source, tensors.gradient, tensors.y),
        window_(clipped(d.map.window(region.box), d.source)),
        target_in_place_(target_in_place(d, tensors)),
        scratch_(memory, scratch_bytes(d, region, tensors)) {
    const auto take = [this](index_t blocks) {
      return scratch_.template take<T>(static_cast<std::size_t>(blocks) * 64);
    };
    bias_ = take(1);
    T* staged = take(reader_.blocks(window_));
    source_ = reader_.read(d.boxes, region.sample, region.first_column, window_, staged);
    const Extent3 e = region.box.extent();
    if (target_in_place_) {
      const View<T>& to = tensors.target;
      target_ = {view().data, {0, 0, 0}, {block, to.stride[3], to.stride[2]}, 0};
    } else {
      target_ = {take(volume(e)), region.box.begin, {block, e.x * block, e.y * e.x * block}, 0};
      row_ = take(e.x);
    }
  }

  static std::size_t scratch_bytes(const DepthwiseDirection<T>& d, const Region& region,
                                   const DirectionTensors<T>& tensors) {
    const Extent3 e = region.box.extent();
    const BoxReader<T> reader(tensors.source, tensors.gradient, tensors.y);
    const index_t staged = reader.blocks(clipped(d.map.window(region.box), d.source));
    return static_cast<std::size_t>(1 + staged + (target_in_place(d, tensors) ? 0 : volume(e) + e.x)) * 64;
  }

  void run() {
    for (index_t lane = 0; lane < block; ++lane) {
      const bool there = tensors_.bias && lane < view().channels;
      bias_[lane] = there ? tensors_.bias(0, region_.first_column * block + lane, 0, 0, 0) : T{0};
    }
    for (std::size_t i = 0; i < d_.phases.size(); ++i) {
      d_.map.for_each_equal_run(d_.map.phases()[i], region_.box, [&](const Extent3& begin, const Extent3& count) {
        multiply_alike(d_.phases[i], begin, count);
      });
    }
    finish();
  }

 private:
  static constexpr index_t block = fft::tile_lanes<T>;

  static bool target_in_place(const DepthwiseDirection<T>& d, const DirectionTensors<T>& tensors) {
    return d.target_layout == Layout::blocked && !tensors.add;
  }
  BlockView<T> view() const {
    return block_of(tensors_.target, d_.target_layout, region_.sample, region_.first_column * block);
  }

  /// Computes results that the same taps reach. The number of rows of taps in a pass does not depend on the rows that
  /// are clipped. If no tap reaches the results, they get the bias.
  void multiply_alike(const TapRows& rows, const Extent3& begin, const Extent3& count) const {
    const Extent3 base = d_.map.base(begin);
    std::array<DirectStep, static_cast<std::size_t>(depthwise_taps_per_pass)> steps;
    TapProduct<T> product{.source = source_.at(base),
                          .source_strides = source_.strides * d_.map.source_step(),
                          .steps = steps.data(),
                          .step_count = 0,
                          .source_tap = rows.source_step * block,
                          .weights_tap = rows.kernel_step * block,
                          .weights = weights_,
                          .target = target_.at(begin),
                          .target_strides = target_.strides * d_.map.target_step(),
                          .bias = bias_,
                          .count = count,
                          .add = false};
    lengthen(product.count, product.source_strides, product.target_strides);
    const auto all = static_cast<index_t>(rows.rows.size());
    for (index_t done = 0; done < all || !product.add; done += rows.per_pass) {
      product.step_count = 0;
      for (index_t i = done; i < std::min(done + rows.per_pass, all); ++i) {
        const TapRow& row = rows.rows[static_cast<std::size_t>(i)];
        if (!d_.map.meets({row.offset, row.tap}, base)) continue;
        steps[static_cast<std::size_t>(product.step_count++)] = {
            .source = source_.offset(row.offset), .weights = row.tap * block, .terms = static_cast<int>(rows.taps)};
      }
      if (product.step_count > 0 || !product.add) d_.products.voxels(product);
      product.add = true;
    }
  }

  void finish() {
    const BoxTarget<T> box{.block = view(),
                           .origin = region_.box.begin,
                           .extent = region_.box.extent(),
                           .activation = tensors_.activation,
                           .add = tensors_.add,
                           .non_temporal = d_.target_layout == Layout::plain && !tensors_.add &&
                                           writes_non_temporal(tensors_.target, d_.non_temporal_from)};
    // Results that were computed in place may still need the activation, and zeros in lanes without a channel.
    const bool complete = tensors_.activation.kind == Activation::Kind::none && box.block.channels == block;
    if (target_in_place_ && complete) return;
    target_in_place_ ? d_.boxes.activate(box) : d_.boxes.store(target_.data, box, row_);
  }

  const DepthwiseDirection<T>& d_;
  const Region& region_;
  const DirectionTensors<T>& tensors_;
  const T* weights_;
  BoxReader<T> reader_;
  Box window_;
  bool target_in_place_;
  Scratch scratch_;
  BlockedBox<const T> source_;
  BlockedBox<T> target_;
  T *bias_ = nullptr, *row_ = nullptr;
};

}  // namespace

TapRows::TapRows(const DirectPhase& phase) {
  for (const DirectTap& tap : phase.taps) {
    const bool first = rows.empty() || rows.back().offset.z != tap.offset.z || rows.back().offset.y != tap.offset.y;
    if (first) rows.push_back({tap.offset, tap.tap});
  }
  if (rows.empty()) return;
  taps = static_cast<index_t>(phase.taps.size() / rows.size());
  const auto same_plane = [this](const TapRow& row) { return row.offset.z == rows.front().offset.z; };
  const auto of_plane = static_cast<index_t>(std::count_if(rows.begin(), rows.end(), same_plane));
  const index_t most = std::max<index_t>(1, depthwise_taps_per_pass / taps);
  per_pass = of_plane > most ? even(of_plane, most) : of_plane * std::max<index_t>(1, small_pass / (of_plane * taps));
  if (taps < 2) return;
  source_step = phase.taps[1].offset.x - phase.taps[0].offset.x;
  kernel_step = phase.taps[1].tap - phase.taps[0].tap;
}

RegionGrid choose_boxes(const DirectMap& map, const ConvProblem& p) {
  const Extent3& n = map.domain();
  const auto fits = [&](const Extent3& e) {
    const Extent3 window = map.window({{0, 0, 0}, e}).extent();
    return 64 * (window.z * window.y * window.x + volume(e)) <= box_bytes;
  };
  const index_t samples = p.batch * blocks_of(p);
  const index_t wanted = std::clamp<index_t>(samples * volume(n) * p.kernel.volume() / task_products, 1, tasks);
  const index_t most = std::max<index_t>(n.x, samples * volume(n) / wanted);
  RegionGrid grid{.extent = {1, 1, n.x}};
  // Boxes are nearly square along Z and Y, so that neighbours share little of their sources.
  for (bool grown = true; grown;) {
    grown = false;
    for (const int axis : {1, 0}) {
      Extent3 larger = grid.extent;
      if (++larger[axis] > n[axis] || volume(larger) > most || !fits(larger)) continue;
      grid.extent = larger;
      grown = true;
    }
  }
  grid.extent = {even(n.z, grid.extent.z), even(n.y, grid.extent.y), n.x};
  grid.count = {(n.z + grid.extent.z - 1) / grid.extent.z, (n.y + grid.extent.y - 1) / grid.extent.y, 1};
  return grid;
}

template <class T>
BlockView<T> kernel_block(const View<T>& w, index_t first) {
  const Extent3& k = w.shape.extent;
  const bool dense = w.stride[4] == 1 && w.stride[3] == k.x && w.stride[2] == k.y * k.x;
  const index_t channels = std::min<index_t>(fft::tile_lanes<std::remove_const_t<T>>, w.shape.n - first);
  return {.data = &w(first, 0, 0, 0, 0),
          .extent = dense ? Extent3{1, 1, k.volume()} : k,
          .channels = channels,
          .channel_stride = w.stride[0],
          .plane_stride = w.stride[2],
          .row_stride = w.stride[3]};
}
template BlockView<float> kernel_block(const View<float>&, index_t);
template BlockView<double> kernel_block(const View<double>&, index_t);
template BlockView<const float> kernel_block(const View<const float>&, index_t);
template BlockView<const double> kernel_block(const View<const double>&, index_t);

template <class T>
DepthwiseDirection<T>::DepthwiseDirection(const ConvProblem& p, plan::Direction direction)
    : map(p, direction),
      taps(p.kernel.volume()),
      source(direction == plan::Direction::forward ? p.input : p.output()),
      source_layout(direction == plan::Direction::forward ? p.x_layout : p.y_layout),
      target_layout(direction == plan::Direction::forward ? p.y_layout : p.x_layout),
      grid(choose_boxes(map, p)) {
  for (const DirectPhase& phase : map.phases()) phases.emplace_back(phase);
}

template struct DepthwiseDirection<float>;
template struct DepthwiseDirection<double>;

template <class T>
std::size_t depthwise_scratch_bytes(const DepthwiseDirection<T>& direction, const Region& region,
                                    const DirectionTensors<T>& tensors) {
  return BoxRun<T>::scratch_bytes(direction, region, tensors);
}
template std::size_t depthwise_scratch_bytes(const DepthwiseDirection<float>&, const Region&,
                                             const DirectionTensors<float>&);
template std::size_t depthwise_scratch_bytes(const DepthwiseDirection<double>&, const Region&,
                                             const DirectionTensors<double>&);

template <class T>
void run_depthwise(const DepthwiseDirection<T>& direction, const Region& region, const DirectionTensors<T>& tensors,
                   const T* weights, std::pmr::memory_resource* memory) {
  BoxRun<T>(direction, region, tensors, weights + region.first_column * direction.taps * fft::tile_lanes<T>, memory)
      .run();
}
template void run_depthwise(const DepthwiseDirection<float>&, const Region&, const DirectionTensors<float>&,
                            const float*, std::pmr::memory_resource*);
template void run_depthwise(const DepthwiseDirection<double>&, const Region&, const DirectionTensors<double>&,
                            const double*, std::pmr::memory_resource*);

namespace {

/// Adds the products of a box of dy and its input window of x to the sums of one channel block.
template <class T>
class BoxSum {
 public:
  BoxSum(const ConvProblem& p, const DepthwiseDirection<T>& forward, const BlockedBox<const T>& x,
         const BlockedBox<const T>& dy, T* sums)
      : p_(p), forward_(forward), x_(x), dy_(dy), sums_(sums) {}

  /// Adds the box in pieces of whole rows.
  void add(const Box& box) const {
    const Extent3 e = box.extent();
    const index_t rows = std::max<index_t>(1, piece_voxels / e.x), planes = std::max<index_t>(1, rows / e.y);
    Box piece = box;
    for (piece.begin.z = box.begin.z; piece.begin.z < box.end.z; piece.begin.z += planes) {
      piece.end.z = std::min(piece.begin.z + planes, box.end.z);
      for (piece.begin.y = box.begin.y; piece.begin.y < box.end.y; piece.begin.y += rows) {
        piece.end.y = std::min(piece.begin.y + rows, box.end.y);
        add_piece(piece);
      }
    }
  }

 private:
  static constexpr index_t block = fft::tile_lanes<T>;

  /// Returns the voxels of a piece whose row of taps lies inside x along Z and Y.
  Box met_by(const Box& piece, index_t row) const {
    Box inside = clipped_taps(p_, piece, {row / p_.kernel.y, row % p_.kernel.y, 0});
    inside.begin.x = piece.begin.x;
    inside.end.x = piece.end.x;
    return inside;
  }

  void add_piece(const Box& piece) const {
    const TapRows& rows = forward_.phases.front();
    const auto all = static_cast<index_t>(rows.rows.size());
    const index_t most = forward_.products.rows_together(rows.taps);
    index_t row = 0;
    while (row < all) {
      const Box inside = met_by(piece, row);
      index_t together = 1;
      while (together < most && row + together < all) {
        const Box next = met_by(piece, row + together);
        if (next.begin != inside.begin || next.end != inside.end) break;
        ++together;
      }
      const Extent3 count = inside.extent();
      if (count.z > 0 && count.y > 0) add_rows(inside, row, together);
      row += together;
    }
  }

  void add_rows(const Box& box, index_t row, index_t together) const {
    const TapRows& rows = forward_.phases.front();
    TapSums<T> product{.x = {},
                       .x_strides = x_.strides * p_.stride,
                       .x_tap = rows.source_step * block,
                       .dy = dy_.at(box.begin),
                       .dy_strides = dy_.strides,
                       .sums = {},
                       .rows = together,
                       .taps = rows.taps,
                       .count = box.extent()};
    for (index_t i = 0; i < together; ++i) {
      const TapRow& at = rows.rows[static_cast<std::size_t>(row + i)];
      const Extent3 from = forward_.map.base(box.begin) + at.offset;
      product.x[static_cast<std::size_t>(i)] = x_.at(from);
      product.sums[static_cast<std::size_t>(i)] = sums_ + at.tap * block;
    }
    lengthen(product.count, product.x_strides, product.dy_strides);
    forward_.products.taps(product);
  }

  const ConvProblem& p_;
  const DepthwiseDirection<T>& forward_;
  const BlockedBox<const T>& x_;
  const BlockedBox<const T>& dy_;
  T* sums_;
};

}  // namespace

template <class T>
DepthwiseGradient<T>::DepthwiseGradient(const ConvProblem& p, const DepthwiseDirection<T>& forward)
    : problem_(p),
      forward_(forward),
      blocks_(blocks_of(p)),
      boxes_(p.batch * forward.grid.per_sample()),
      parts_(std::clamp<index_t>(tasks / blocks_, 1, boxes_)) {}

template <class T>
std::string DepthwiseGradient<T>::describe() const {
  return fmt::format("in boxes of {}, pieces of {} voxels, {} parts", to_string(forward_.grid.extent), piece_voxels,
                     parts_);
}

namespace {

template <class T>
BoxReader<T> fine_reader(const GradientTensors<T>& a) {
  return {a.high_res, a.y_is_high_res ? a.activation : nullptr, a.y};
}
template <class T>
BoxReader<T> coarse_reader(const GradientTensors<T>& a) {
  return {a.low_res, a.y_is_high_res ? nullptr : a.activation, a.y};
}
template <class T>
std::size_t staged_bytes(const BoxReader<T>& reader, const Box& box) {
  return static_cast<std::size_t>(reader.blocks(box)) * 64;
}

}  // namespace

template <class T>
std::size_t DepthwiseGradient<T>::scratch_bytes(const GradientTensors<T>& a, index_t part) const {
  const BoxReader<T> x = fine_reader(a), dy = coarse_reader(a);
  std::size_t most = 0;
  for (index_t i = first_box(part); i < first_box(part + 1); ++i) {
    const Box box = forward_.grid.box(i % forward_.grid.per_sample(), forward_.map.domain());
    const Box window = clipped(forward_.map.window(box), forward_.source);
    most = std::max(most, staged_bytes(x, window) + staged_bytes(dy, box) + 64);
  }
  return most;
}

template <class T>
void DepthwiseGradient<T>::sum(const GradientTensors<T>& a, index_t part, index_t channels, T* sums) const {
  sums += (part * blocks_ + channels) * block_elements();
  std::fill_n(sums, block_elements(), T{0});
  const BoxReader<T> x = fine_reader(a), dy = coarse_reader(a);
  const RegionGrid& grid = forward_.grid;
  for (index_t i = first_box(part); i < first_box(part + 1); ++i) {
    const index_t sample = i / grid.per_sample();
    const Box box = grid.box(i % grid.per_sample(), forward_.map.domain());
    const Box window = clipped(forward_.map.window(box), forward_.source);
    const std::size_t x_bytes = staged_bytes(x, window), dy_bytes = staged_bytes(dy, box);
    Scratch scratch(a.memory, x_bytes + dy_bytes + 64);
    const BlockedBox<const T> high_res = x.read(forward_.boxes, sample, channels, window, scratch.take<T>(x_bytes));
    const BlockedBox<const T> low_res = dy.read(forward_.boxes, sample, channels, box, scratch.take<T>(dy_bytes));
    BoxSum<T>(problem_, forward_, high_res, low_res, sums).add(box);
  }
}

template <class T>
void DepthwiseGradient<T>::finish(const BackwardArguments& a, index_t channels, T* sums) const {
  constexpr index_t block = fft::tile_lanes<T>;
  T* total = sums + channels * block_elements();
  for (index_t part = 1; part < parts_; ++part) {
    const T* other = total + part * blocks_ * block_elements();
    for (index_t i = 0; i < block_elements(); ++i) total[i] += other[i];
  }
  const BlockView<T> kernels = kernel_block(a.dw.as<T>(), channels * block);
  Scratch scratch(a.memory, finish_scratch_bytes());
  forward_.boxes.store(total, {.block = kernels, .extent = kernels.extent, .add = a.add_dw},
                       scratch.take<T>(finish_scratch_bytes()));
}

template class DepthwiseGradient<float>;
template class DepthwiseGradient<double>;

}  // namespace convolume::conv
