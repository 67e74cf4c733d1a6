#include "conv/direct/direct_weights.hpp"

#include <algorithm>

#include "conv/caches/cache_lines.hpp"
#include "conv/caches/scratch.hpp"
#include "conv/direct/channel_product.hpp"
#include "conv/tensor_io/block_box.hpp"
#include "plan/sides.hpp"

namespace convolume::conv {
namespace {

/// One side of a piece: channel blocks [first, last) of a tensor's voxels. They are read in place if the tensor is
/// blocked and needs no activation's gradient. Otherwise they are staged. The only channel of a plain tensor is read in
/// place too if products read single values of it (`single_values`).
template <class T>
class PieceSide {
 public:
  static constexpr index_t block = fft::tile_lanes<T>;

  PieceSide(const View<const T>& tensor, Layout layout, index_t first, index_t last, bool single_values)
      : tensor_(tensor),
        layout_(layout),
        first_(first),
        last_(last),
        is_row_(single_values && layout == Layout::plain && tensor.shape.c == 1) {}
  /// Multiplies the voxels by the activation's gradient at y from now on.
  void set_gradient(const Activation& activation, const View<const T>& y) {
    activation_ = &activation;
    y_ = y;
  }

  bool in_place() const { return (layout_ == Layout::blocked || is_row_) && activation_ == nullptr; }
  index_t blocks() const { return last_ - first_; }
  index_t staged_blocks(index_t voxels) const { return in_place() ? 0 : blocks() * voxels; }

  void load(const BoxKernels<T>& boxes, index_t n, const Box& box, T* staged, T* row) {
    if (in_place() && is_row_) {
      data_ = &tensor_(n, 0, 0, 0, 0);
      origin_ = {0, 0, 0};
      strides_ = {1, tensor_.stride[3], tensor_.stride[2]};
      return;
    }
    if (in_place()) {
      data_ = block_of(tensor_, layout_, n, first_ * block).data;
      origin_ = {0, 0, 0};
      strides_ = {block, tensor_.stride[3], tensor_.stride[2]};
      step_ = tensor_.stride[1];
      return;
    }
    load_samples(boxes, n, 1, box, staged, row);
  }

  /// Loads a box of several samples. Those of a block lie side by side, each `sample()` elements behind the one before.
  void load_samples(const BoxKernels<T>& boxes, index_t n, index_t samples, const Box& box, T* staged, T* row) {
    const Extent3 e = box.extent();
    sample_ = e.z * e.y * e.x * block;
    step_ = samples * sample_;
    for (index_t i = first_; i < last_; ++i) {
      for (index_t s = 0; s < samples; ++s) {
        stage(boxes, n + s, i, box, staged + (i - first_) * step_ + s * sample_, row);
      }
    }
    data_ = staged;
    origin_ = box.begin;
    strides_ = {block, e.x * block, e.y * e.x * block};
  }

  /// The first channel block of the voxel at origin(). The other blocks are step() elements apart.
  const T* data() const { return data_; }
  const Extent3& origin() const { return origin_; }
  std::ptrdiff_t offset(const Extent3& i) const {
    return i.z * strides_.plane + i.y * strides_.row + i.x * strides_.voxel;
  }
  const BoxStrides& strides() const { return strides_; }
  index_t step() const { return step_; }
  index_t sample() const { return sample_; }

 private:
  void stage(const BoxKernels<T>& boxes, index_t n, index_t channel_block, const Box& box, T* to, T* row) const {
    BoxSource<T> source{.block = block_of(tensor_, layout_, n, channel_block * block),
                        .origin = box.begin,
                        .extent = box.extent(),
                        .activation = activation_};
    if (activation_ != nullptr) source.y = block_of(y_, layout_, n, channel_block * block);
    boxes.load(source, to, row);
  }

  View<const T> tensor_, y_{};
  Layout layout_;
  index_t first_, last_;
  bool is_row_;
  const Activation* activation_ = nullptr;
  const T* data_ = nullptr;
  Extent3 origin_{0, 0, 0};
  BoxStrides strides_{};
  index_t step_ = 0, sample_ = 0;
};

index_t volume(const Extent3& e) { return e.z * e.y * e.x; }

/// Both sides of a group's pieces.
template <class T>
struct GroupSides {
  GroupSides(const ConvProblem& p, const GradientTensors<T>& a, const PairGroup& g)
      : x(a.high_res, p.x_layout, g.first_in, g.last_in, true),
        dy(a.low_res, p.y_layout, g.first_out, g.last_out, false) {
    if (a.activation != nullptr) (a.y_is_high_res ? x : dy).set_gradient(*a.activation, a.y);
  }
  PieceSide<T> x, dy;
};

/// Bytes of scratch for the largest piece, for a row, for the taps, and for the boxes that are prefetched.
template <class T>
struct StagedBytes {
  StagedBytes(const ConvProblem& p, const WeightNest& nest, const GroupSides<T>& sides)
      : taps(whole_lines(sizeof(ChannelTap) * static_cast<std::size_t>(p.kernel.volume()))),
        fetched(whole_lines(sizeof(FetchedBox<T>) * static_cast<std::size_t>(sides.x.blocks() + sides.dy.blocks()))) {
    const Extent3 &piece = nest.piece, widest = p.span() + (piece - Extent3::all(1)) * p.stride;
    const bool samples = nest.piece_samples > 1;
    const auto lines = [&](const PieceSide<T>& side, index_t voxels) {
      return samples ? nest.piece_samples * side.blocks() * voxels : side.staged_blocks(voxels);
    };
    x = 64 * static_cast<std::size_t>(lines(sides.x, widest.z * widest.y * (samples ? widest.x : p.input.x)));
    dy = 64 * static_cast<std::size_t>(lines(sides.dy, volume(piece)));
    row = 64 * static_cast<std::size_t>(std::max(p.input.x, piece.x));
  }
  std::size_t all() const { return x + dy + row + taps + fetched; }
  std::size_t x, dy, row, taps, fetched;
};

/// Both sides, with the scratch that holds one of their pieces.
template <class T>
class StagedSides {
 public:
  StagedSides(const ConvProblem& p, const WeightNest& nest, const GroupSides<T>& sides, const BoxKernels<T>& boxes,
              std::pmr::memory_resource* memory)
      : x(sides.x),
        dy(sides.dy),
        by_sample_(nest.piece_samples > 1),
        boxes_(boxes),
        bytes_(p, nest, sides),
        scratch_(memory, bytes_.all()),
        staged_x_(scratch_.template take<T>(bytes_.x)),
        staged_dy_(scratch_.template take<T>(bytes_.dy)),
        row_(scratch_.template take<T>(bytes_.row)),
        taps_(scratch_.template take<ChannelTap>(bytes_.taps)),
        fetched_(scratch_.template take<FetchedBox<T>>(bytes_.fetched)) {}

  void load(index_t n, index_t samples, const Box& x_box, const Box& dy_box) {
    samples_ = samples;
    if (by_sample_) {
      x.load_samples(boxes_, n, samples, x_box, staged_x_, row_);
      dy.load_samples(boxes_, n, samples, dy_box, staged_dy_, row_);
      return;
    }
    x.load(boxes_, n, x_box, staged_x_, row_);
    dy.load(boxes_, n, dy_box, staged_dy_, row_);
  }
  /// Returns whether pieces are a voxel of several samples, which were loaded last.
  bool by_sample() const { return by_sample_; }
  index_t samples() const { return samples_; }

  /// Returns room for the taps of a piece, one for each tap of the kernel. The caller fills it.
  ChannelTap* taps() const { return taps_; }
  /// Returns room for a box per channel block of both sides. The caller fills it.
  FetchedBox<T>* fetched() const { return fetched_; }

  PieceSide<T> x, dy;

 private:
  bool by_sample_;
  index_t samples_ = 1;
  const BoxKernels<T>& boxes_;
  StagedBytes<T> bytes_;
  Scratch scratch_;
  T *staged_x_, *staged_dy_, *row_;
  ChannelTap* taps_;
  FetchedBox<T>* fetched_;
};

/// Sums a piece for pairs of channel blocks. Two blocks of dy are computed together.
template <class T>
class PieceSum {
 public:
  PieceSum(const ConvProblem& p, const WeightBlocks<T>& layout, const PairGroup& group, const StagedSides<T>& sides,
           ChannelKernel<T> multiply)
      : p_(p), layout_(layout), group_(group), sides_(sides), multiply_(multiply) {}

  /// Prepares the sums of the piece that the sides hold, for a box of taps. The voxels of the piece `next`, of the same
  /// sample, are prefetched meanwhile if they are read in place.
  void start(const Box& box, const Box& taps, const Box& next) {
    box_ = box;
    list_taps(taps);
    next_ = sides_.fetched();
    next_count_ = 0;
    if (next.begin == box.begin || sides_.by_sample()) return;
    if (sides_.x.in_place()) {
      Extent3 first = next.begin * p_.stride - p_.pad_before;
      for (int axis = 0; axis < 3; ++axis) first[axis] = std::max<index_t>(0, first[axis]);
      add_fetched(sides_.x, first, sides_.x.strides() * p_.stride);
    }
    if (sides_.dy.in_place()) add_fetched(sides_.dy, next.begin, sides_.dy.strides());
  }

  /// Sums for the blocks `out` to before `last_out` of dy, which are one or two. The squares of the second block lie
  /// `column` elements behind those of the first.
  void sum_pair(index_t in, index_t out, index_t last_out, bool add, T* sums, std::ptrdiff_t column) {
    const index_t fetched = multiply_({.x = sides_.x.data() + (in - group_.first_in) * sides_.x.step(),
                                       .x_strides = x_strides(),
                                       .dy = sides_.dy.data() + sides_.dy.offset(box_.begin - sides_.dy.origin()) +
                                             (out - group_.first_out) * sides_.dy.step(),
                                       .dy_strides = sides_.dy.strides(),
                                       .dy_column = sides_.dy.step(),
                                       .sums = sums,
                                       .sums_column = column,
                                       .taps = sides_.taps(),
                                       .tap_count = tap_count_,
                                       .channels = std::min(layout_.block, p_.in_channels - in * layout_.block),
                                       .columns = last_out - out,
                                       .add = add,
                                       .next = next_,
                                       .next_count = next_count_});
    next_ += fetched;
    next_count_ -= fetched;
  }

 private:
  /// Samples that are summed together are the voxels of a row.
  BoxStrides x_strides() const {
    return sides_.by_sample() ? BoxStrides{sides_.x.sample(), 0, 0} : sides_.x.strides() * p_.stride;
  }
  void list_taps(const Box& taps) {
    tap_count_ = 0;
    for (index_t z = taps.begin.z; z < taps.end.z; ++z) {
      for (index_t y = taps.begin.y; y < taps.end.y; ++y) {
        for (index_t x = taps.begin.x; x < taps.end.x; ++x) sides_.taps()[tap_count_++] = tap_at({z, y, x});
      }
    }
  }
  ChannelTap tap_at(const Extent3& tap) const {
    const Extent3& k = p_.kernel;
    Box inside = clipped_taps(p_, box_, tap);
    if (sides_.by_sample()) {
      const Extent3 voxels = inside.extent();
      const bool reads_x = std::min({voxels.z, voxels.y, voxels.x}) > 0;
      inside = {box_.begin, box_.begin + Extent3{1, 1, reads_x ? sides_.samples() : 0}};
    }
    const Extent3 from = box_.begin * p_.stride + tap * p_.dilation - p_.pad_before;
    return {.x = sides_.x.offset(from - sides_.x.origin()),
            .inside = {inside.begin - box_.begin, inside.end - box_.begin},
            .sums = ((tap.z * k.y + tap.y) * k.x + tap.x) * layout_.square()};
  }
  /// Adds the boxes of a side that begin at the voxel `first`.
  void add_fetched(const PieceSide<T>& side, const Extent3& first, const BoxStrides& strides) {
    const T* data = side.data() + side.offset(first - side.origin());
    for (index_t i = 0; i < side.blocks(); ++i, data += side.step()) {
      sides_.fetched()[next_count_++] = {.data = data, .strides = strides};
    }
  }

  const ConvProblem& p_;
  const WeightBlocks<T>& layout_;
  const PairGroup& group_;
  const StagedSides<T>& sides_;
  ChannelKernel<T> multiply_;
  Box box_;
  index_t tap_count_ = 0;
  const FetchedBox<T>* next_ = nullptr;  // boxes that were not prefetched yet
  index_t next_count_ = 0;
};

/// What a task multiplies at once: a piece of voxels, for some channel blocks and taps.
struct PieceWork {
  index_t sample = -1, samples = 1;
  Box box{}, taps{};
  index_t first_in = 0, last_in = 0, first_out = 0, last_out = 0;
  bool add = false;
};

/// Runs the loops of a task.
template <class T>
class PartSum {
 public:
  PartSum(const ConvProblem& p, const WeightNest& nest, const WeightBlocks<T>& layout, const PairGroup& group,
          StagedSides<T>& sides, ChannelKernel<T> multiply, T* sums)
      : p_(p),
        nest_(nest),
        layout_(layout),
        group_(group),
        sides_(sides),
        sum_(p, layout, group, sides, multiply),
        sums_(sums) {
    range(Dim::n) = {group.first_sample, group.last_sample};
    range(Dim::k) = {group.first_out, group.last_out};
    range(Dim::c) = {group.first_in, group.last_in};
    for (int axis = 0; axis < 3; ++axis) {
      range(Dim::z, axis) = {group.box.begin[axis], group.box.end[axis]};
      range(Dim::kz, axis) = {0, p.kernel[axis]};
    }
  }

  void run() {
    walk(0);
    multiply(pending_, pending_);
  }

 private:
  using Dim = plan::Dim;
  struct Range {
    index_t begin = 0, end = 0;
  };
  Range& range(Dim dim, int axis = 0) {
    return ranges_[static_cast<std::size_t>(dim) + static_cast<std::size_t>(axis)];
  }

  void walk(std::size_t level) {
    if (level == nest_.walk.size()) {
      // A piece is multiplied when the next one is known, because the next one is prefetched meanwhile.
      const PieceWork next = work();
      if (pending_.sample >= 0) multiply(pending_, next);
      pending_ = next;
      return;
    }
    const TaskLoop& loop = nest_.walk[level];
    Range& one = range(loop.dim);
    const Range all = one;
    for (index_t i = all.begin; i < all.end; i += loop.step) {
      one = {i, std::min(all.end, i + loop.step)};
      walk(level + 1);
    }
    one = all;
  }

  PieceWork work() {
    PieceWork work{.sample = range(Dim::n).begin,
                   .samples = range(Dim::n).end - range(Dim::n).begin,
                   .first_in = range(Dim::c).begin,
                   .last_in = range(Dim::c).end,
                   .first_out = range(Dim::k).begin,
                   .last_out = range(Dim::k).end};
    for (int axis = 0; axis < 3; ++axis) {
      work.box.begin[axis] = range(Dim::z, axis).begin;
      work.box.end[axis] = range(Dim::z, axis).end;
      work.taps.begin[axis] = range(Dim::kz, axis).begin;
      work.taps.end[axis] = range(Dim::kz, axis).end;
    }
    work.add = work.sample > group_.first_sample || work.box.begin != group_.box.begin;
    return work;
  }

  void multiply(const PieceWork& w, const PieceWork& next) {
    if (w.sample != held_.sample || w.box.begin != held_.box.begin) {
      sides_.load(w.sample, w.samples, input_window(p_, w.box), w.box);
      held_ = w;
    }
    sum_.start(w.box, w.taps, next.sample == w.sample ? next.box : w.box);
    for (index_t in = w.first_in; in < w.last_in; ++in) {
      for (index_t out = w.first_out; out < w.last_out; out += 2) {
        sum_.sum_pair(in, out, std::min(out + 2, w.last_out), w.add, sums_ + layout_.offset(out, in, 0),
                      layout_.column_step());
      }
    }
  }

  const ConvProblem& p_;
  const WeightNest& nest_;
  const WeightBlocks<T>& layout_;
  const PairGroup& group_;
  StagedSides<T>& sides_;
  PieceSum<T> sum_;
  T* sums_;
  std::array<Range, plan::all_dims.size()> ranges_{};
  PieceWork pending_, held_;
};

}  // namespace

template <class T>
WeightGradient<T>::WeightGradient(const ConvProblem& problem, const plan::LoopNest& nest)
    : problem_(plan::Sides(problem).convolution()),
      layout_{.terms = problem_.in_channels, .lanes = problem_.out_channels, .taps = problem_.kernel.volume()},
      non_temporal_(writes_gradient_non_temporal(layout_)),
      nest_(compile_weight_nest(nest, problem)) {}

template <class T>
PairGroup WeightGradient<T>::group(index_t part, index_t in, index_t out) const noexcept {
  const Extent3 &count = nest_.part_count, &extent = nest_.part_extent, domain = problem_.output();
  const index_t n = part / (count.z * count.y), z = part / count.y % count.z, y = part % count.y;
  return {.part = part,
          .first_sample = n * nest_.part_samples,
          .last_sample = std::min(problem_.batch, (n + 1) * nest_.part_samples),
          .box = {{z * extent.z, y * extent.y, 0},
                  {std::min(domain.z, (z + 1) * extent.z), std::min(domain.y, (y + 1) * extent.y), domain.x}},
          .first_in = in * nest_.in_blocks,
          .last_in = std::min(layout_.term_blocks(), (in + 1) * nest_.in_blocks),
          .first_out = out * nest_.out_blocks,
          .last_out = std::min(layout_.lane_blocks(), (out + 1) * nest_.out_blocks)};
}

template <class T>
std::size_t WeightGradient<T>::scratch_bytes(const GradientTensors<T>& a, const PairGroup& g) const {
  const std::size_t staged = StagedBytes<T>(problem_, nest_, GroupSides<T>(problem_, a, g)).all();
  return at_once() ? staged + pair_bytes() + finish_scratch_bytes() : staged;
}

template <class T>
void WeightGradient<T>::sum(const GradientTensors<T>& a, const PairGroup& g, T* sums) const {
  StagedSides<T> staged(problem_, nest_, GroupSides<T>(problem_, a, g), kernels_.boxes, a.memory);
  PartSum<T>(problem_, nest_, layout_, g, staged, kernels_.multiply, sums + g.part * layout_.elements()).run();
}

template <class T>
void WeightGradient<T>::write(const BackwardArguments& arguments, const GradientTensors<T>& a,
                              const PairGroup& g) const {
  StagedSides<T> staged(problem_, nest_, GroupSides<T>(problem_, a, g), kernels_.boxes, a.memory);
  Scratch scratch(a.memory, pair_bytes() + finish_scratch_bytes());
  T* sums = scratch.take<T>(pair_bytes());
  T* rows = scratch.take<T>(finish_scratch_bytes());
  PieceSum<T> sum(problem_, layout_, g, staged, kernels_.multiply);
  staged.load(0, g.last_sample, input_window(problem_, g.box), g.box);
  sum.start(g.box, {{0, 0, 0}, problem_.kernel}, g.box);
  const index_t column = layout_.taps * layout_.square();
  for (index_t in = g.first_in; in < g.last_in; ++in) {
    for (index_t out = g.first_out; out < g.last_out; out += 2) {
      const index_t last_out = std::min(out + 2, g.last_out);
      sum.sum_pair(in, out, last_out, false, sums, column);
      for (index_t i = out; i < last_out; ++i) {
        kernels_.squares.unpack(sums + (i - out) * column, layout_, i, in, arguments.add_dw, non_temporal_,
                                arguments.dw.as<T>(), rows);
      }
    }
  }
}

template <class T>
void WeightGradient<T>::finish(const BackwardArguments& a, index_t pair, T* sums) const {
  const index_t out = pair / layout_.term_blocks(), in = pair % layout_.term_blocks();
  const index_t count = layout_.block * std::min(layout_.block, problem_.in_channels - in * layout_.block);
  T* total = sums + layout_.offset(out, in, 0);
  for (index_t part = 1; part < nest_.parts(); ++part) {
    const T* other = total + part * layout_.elements();
    for (index_t tap = 0; tap < layout_.taps; ++tap) {
      for (index_t i = tap * layout_.square(); i < tap * layout_.square() + count; ++i) total[i] += other[i];
    }
  }
  Scratch scratch(a.memory, finish_scratch_bytes());
  kernels_.squares.unpack(total, layout_, out, in, a.add_dw, non_temporal_, a.dw.as<T>(),
                          scratch.take<T>(finish_scratch_bytes()));
}

template class WeightGradient<float>;
template class WeightGradient<double>;

}  // namespace convolume::conv
