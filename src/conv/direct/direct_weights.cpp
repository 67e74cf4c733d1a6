#include "conv/direct/direct_weights.hpp"

#include <algorithm>

#include "conv/caches/cache_lines.hpp"
#include "conv/caches/scratch.hpp"
#include "conv/direct/direct_product.hpp"
#include "conv/tensor_io/block_box.hpp"
#include "plan/sides.hpp"

namespace convolume::conv {
namespace {

/// One side of a piece: channel blocks [first, last) of a tensor's voxels. They are read in place if the tensor is
/// blocked and needs no activation's gradient. Otherwise they are staged.
template <class T>
class PieceSide {
 public:
  static constexpr index_t block = fft::tile_lanes<T>;

  PieceSide(const View<const T>& tensor, Layout layout, index_t first, index_t last)
      : tensor_(tensor), layout_(layout), first_(first), last_(last) {}
  /// Multiplies the voxels by the activation's gradient at y from now on.
  void set_gradient(const Activation& activation, const View<const T>& y) {
    activation_ = &activation;
    y_ = y;
  }

  bool in_place() const { return layout_ == Layout::blocked && activation_ == nullptr; }
  index_t blocks(index_t voxels) const { return in_place() ? 0 : (last_ - first_) * voxels; }

  void load(const BoxKernels<T>& boxes, index_t n, const Box& box, T* staged, T* row) {
    const Extent3 e = box.extent();
    if (in_place()) {
      data_ = block_of(tensor_, layout_, n, first_ * block).data;
      origin_ = {0, 0, 0};
      strides_ = {block, tensor_.stride[3], tensor_.stride[2]};
      step_ = tensor_.stride[1];
      return;
    }
    step_ = e.z * e.y * e.x * block;
    for (index_t i = first_; i < last_; ++i) {
      BoxSource<T> source{.block = block_of(tensor_, layout_, n, i * block),
                          .origin = box.begin,
                          .extent = e,
                          .activation = activation_};
      if (activation_ != nullptr) source.y = block_of(y_, layout_, n, i * block);
      boxes.load(source, staged + (i - first_) * step_, row);
    }
    data_ = staged;
    origin_ = box.begin;
    strides_ = {block, e.x * block, e.y * e.x * block};
  }

  /// Return the place of a voxel in the first channel block. The other blocks are step() elements apart.
  const T* at(const Extent3& i) const { return data_ + offset(i - origin_); }
  std::ptrdiff_t offset(const Extent3& i) const {
    return i.z * strides_.plane + i.y * strides_.row + i.x * strides_.voxel;
  }
  const BoxStrides& strides() const { return strides_; }
  index_t step() const { return step_; }

 private:
  View<const T> tensor_, y_{};
  Layout layout_;
  index_t first_, last_;
  const Activation* activation_ = nullptr;
  const T* data_ = nullptr;
  Extent3 origin_{0, 0, 0};
  BoxStrides strides_{};
  index_t step_ = 0;
};

index_t volume(const Extent3& e) { return e.z * e.y * e.x; }

/// Both sides of a group's pieces.
template <class T>
struct GroupSides {
  GroupSides(const ConvProblem& p, const GradientTensors<T>& a, const PairGroup& g)
      : x(a.high_res, p.x_layout, g.first_in, g.last_in), dy(a.low_res, p.y_layout, g.first_out, g.last_out) {
    if (a.activation != nullptr) (a.y_is_high_res ? x : dy).set_gradient(*a.activation, a.y);
  }
  PieceSide<T> x, dy;
};

/// The voxels of a piece that a tap multiplies, on both sides, in the first channel blocks.
template <class T>
struct PieceTap {
  const T *x, *dy;
  Extent3 count;  // 0 or less along some axis if there are none
};

/// Bytes of scratch for the largest piece, for a row, and for the taps.
template <class T>
struct StagedBytes {
  StagedBytes(const ConvProblem& p, const Extent3& piece, const GroupSides<T>& sides)
      : taps(whole_lines(sizeof(PieceTap<T>) * static_cast<std::size_t>(p.kernel.volume()))) {
    const Extent3 widest = p.span() + (piece - Extent3::all(1)) * p.stride;
    x = 64 * static_cast<std::size_t>(sides.x.blocks(widest.z * widest.y * p.input.x));
    dy = 64 * static_cast<std::size_t>(sides.dy.blocks(volume(piece)));
    row = 64 * static_cast<std::size_t>(std::max(p.input.x, piece.x));
  }
  std::size_t all() const { return x + dy + row + taps; }
  std::size_t x, dy, row, taps;
};

/// Both sides, with the scratch that holds one of their pieces.
template <class T>
class StagedSides {
 public:
  StagedSides(const ConvProblem& p, const Extent3& piece, const GroupSides<T>& sides, const BoxKernels<T>& boxes,
              std::pmr::memory_resource* memory)
      : x(sides.x),
        dy(sides.dy),
        boxes_(boxes),
        bytes_(p, piece, sides),
        scratch_(memory, bytes_.all()),
        staged_x_(scratch_.template take<T>(bytes_.x)),
        staged_dy_(scratch_.template take<T>(bytes_.dy)),
        row_(scratch_.template take<T>(bytes_.row)),
        taps_(scratch_.template take<PieceTap<T>>(bytes_.taps)) {}

  void load(index_t n, const Box& x_box, const Box& dy_box) {
    x.load(boxes_, n, x_box, staged_x_, row_);
    dy.load(boxes_, n, dy_box, staged_dy_, row_);
  }

  /// Returns room for the taps of a piece, one for each tap of the kernel. The caller fills it.
  PieceTap<T>* taps() const { return taps_; }

  PieceSide<T> x, dy;

 private:
  const BoxKernels<T>& boxes_;
  StagedBytes<T> bytes_;
  Scratch scratch_;
  T *staged_x_, *staged_dy_, *row_;
  PieceTap<T>* taps_;
};

/// Sums a piece for pairs of channel blocks. Two blocks of dy are computed together.
template <class T>
class PieceSum {
 public:
  PieceSum(const ConvProblem& p, const WeightBlocks<T>& layout, const PairGroup& group, const StagedSides<T>& sides,
           const DirectKernels<T>& products)
      : p_(p), layout_(layout), group_(group), sides_(sides), products_(products) {}

  /// Prepares the sums of the piece that the sides hold. The voxels of the piece `next`, of the same sample, are
  /// prefetched meanwhile if they are read in place.
  void start(const Box& box, const Box& next) {
    const Extent3& k = p_.kernel;
    for (index_t i = 0; i < layout_.taps; ++i) {
      const Extent3 tap{i / (k.y * k.x), i / k.x % k.y, i % k.x};
      const Box inside = clipped_taps(p_, box, tap);
      const Extent3 from = inside.begin * p_.stride + tap * p_.dilation - p_.pad_before;
      sides_.taps()[i] = {sides_.x.at(from), sides_.dy.at(inside.begin), inside.extent()};
    }
    const Extent3 ahead = next.begin - box.begin;
    fetches_ = ahead != Extent3{0, 0, 0};
    x_ahead_ = sides_.x.offset(ahead * p_.stride);
    dy_ahead_ = sides_.dy.offset(ahead);
    fetched_ = 0;
  }

  /// Sums one tap after the other, for the blocks `out` to before `last_out` of dy, which are one or two. The squares
  /// of the second block lie `column` elements behind those of the first.
  void sum_pair(index_t in, index_t out, index_t last_out, const Box& taps, bool add, T* sums, std::ptrdiff_t column) {
    ChannelProduct<T> product{.x = nullptr,
                              .x_strides = sides_.x.strides() * p_.stride,
                              .dy = nullptr,
                              .dy_strides = sides_.dy.strides(),
                              .dy_column = sides_.dy.step(),
                              .sums = sums,
                              .sums_column = column,
                              .count = {},
                              .channels = std::min(layout_.block, p_.in_channels - in * layout_.block),
                              .columns = last_out - out,
                              .add = add,
                              .next = {},
                              .next_strides = {}};
    const std::ptrdiff_t x = (in - group_.first_in) * sides_.x.step(), dy = (out - group_.first_out) * sides_.dy.step();
    for_each_tap(taps, [&](index_t i) {
      const PieceTap<T>& tap = sides_.taps()[i];
      product.sums = sums + i * layout_.square();
      product.count = tap.count;
      if (tap.count.z <= 0 || tap.count.y <= 0 || tap.count.x <= 0) {
        for (index_t c = 0; c < product.columns && !add; ++c) {
          std::fill_n(product.sums + c * column, layout_.square(), T{0});
        }
        return;
      }
      product.x = tap.x + x;
      product.dy = tap.dy + dy;
      for (std::size_t n = 0; n < product.next.size(); ++n) fetch_next(product, n, tap);
      products_.channels(product);
    });
  }

 private:
  /// Calls body(index of a tap in the kernel) for the taps of a box.
  template <class Body>
  void for_each_tap(const Box& taps, const Body& body) const {
    for (index_t z = taps.begin.z; z < taps.end.z; ++z) {
      for (index_t y = taps.begin.y; y < taps.end.y; ++y) {
        for (index_t x = taps.begin.x; x < taps.end.x; ++x) body((z * p_.kernel.y + y) * p_.kernel.x + x);
      }
    }
  }

  /// Selects the next channel block of x or dy that was not prefetched yet. At the end it selects data that is in the
  /// caches already.
  void fetch_next(ChannelProduct<T>& product, std::size_t i, const PieceTap<T>& tap) {
    const index_t ins = group_.last_in - group_.first_in, outs = group_.last_out - group_.first_out;
    product.next[i] = product.dy;
    product.next_strides[i] = product.dy_strides;
    if (!fetches_) return;
    const index_t block = fetched_++;
    if (block < ins && sides_.x.in_place()) {
      product.next[i] = tap.x + block * sides_.x.step() + x_ahead_;
      product.next_strides[i] = product.x_strides;
    } else if (block >= ins && block < ins + outs && sides_.dy.in_place()) {
      product.next[i] = tap.dy + (block - ins) * sides_.dy.step() + dy_ahead_;
    }
  }

  const ConvProblem& p_;
  const WeightBlocks<T>& layout_;
  const PairGroup& group_;
  const StagedSides<T>& sides_;
  const DirectKernels<T>& products_;
  bool fetches_ = false;
  std::ptrdiff_t x_ahead_ = 0, dy_ahead_ = 0;
  index_t fetched_ = 0;  // channel blocks of the next piece that were prefetched
};

/// What a task multiplies at once: a piece of voxels, for some channel blocks and taps.
struct PieceWork {
  index_t sample = -1;
  Box box{}, taps{};
  index_t first_in = 0, last_in = 0, first_out = 0, last_out = 0;
  bool add = false;
};

/// Runs the loops of a task.
template <class T>
class PartSum {
 public:
  PartSum(const ConvProblem& p, const WeightNest& nest, const WeightBlocks<T>& layout, const PairGroup& group,
          StagedSides<T>& sides, const DirectKernels<T>& products, T* sums)
      : p_(p),
        nest_(nest),
        layout_(layout),
        group_(group),
        sides_(sides),
        sum_(p, layout, group, sides, products),
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
      sides_.load(w.sample, input_window(p_, w.box), w.box);
      held_ = w;
    }
    sum_.start(w.box, next.sample == w.sample ? next.box : w.box);
    for (index_t in = w.first_in; in < w.last_in; ++in) {
      for (index_t out = w.first_out; out < w.last_out; out += 2) {
        sum_.sum_pair(in, out, std::min(out + 2, w.last_out), w.taps, w.add, sums_ + layout_.offset(out, in, 0),
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
      non_temporal_(writes_copies_non_temporal(layout_)),
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
  const std::size_t staged = StagedBytes<T>(problem_, nest_.piece, GroupSides<T>(problem_, a, g)).all();
  return at_once() ? staged + pair_bytes() + finish_scratch_bytes() : staged;
}

template <class T>
void WeightGradient<T>::sum(const GradientTensors<T>& a, const PairGroup& g, T* sums) const {
  StagedSides<T> staged(problem_, nest_.piece, GroupSides<T>(problem_, a, g), kernels_.boxes, a.memory);
  PartSum<T>(problem_, nest_, layout_, g, staged, kernels_.products, sums + g.part * layout_.elements()).run();
}

template <class T>
void WeightGradient<T>::write(const BackwardArguments& arguments, const GradientTensors<T>& a,
                              const PairGroup& g) const {
  StagedSides<T> staged(problem_, nest_.piece, GroupSides<T>(problem_, a, g), kernels_.boxes, a.memory);
  Scratch scratch(a.memory, pair_bytes() + finish_scratch_bytes());
  T* sums = scratch.take<T>(pair_bytes());
  T* rows = scratch.take<T>(finish_scratch_bytes());
  PieceSum<T> sum(problem_, layout_, g, staged, kernels_.products);
  staged.load(0, input_window(problem_, g.box), g.box);
  sum.start(g.box, g.box);
  const index_t column = layout_.taps * layout_.square();
  for (index_t in = g.first_in; in < g.last_in; ++in) {
    for (index_t out = g.first_out; out < g.last_out; out += 2) {
      const index_t last_out = std::min(out + 2, g.last_out);
      sum.sum_pair(in, out, last_out, {{0, 0, 0}, problem_.kernel}, false, sums, column);
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
