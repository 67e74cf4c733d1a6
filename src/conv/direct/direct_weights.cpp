#include "conv/direct/direct_weights.hpp"

#include <algorithm>

#include "conv/caches/cache_lines.hpp"
#include "conv/caches/scratch.hpp"
#include "conv/direct/direct_product.hpp"
#include "conv/tensor_io/block_box.hpp"

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
  StagedBytes(const ConvProblem& p, const WeightPieces& pieces, const GroupSides<T>& sides)
      : taps(whole_lines(sizeof(PieceTap<T>) * static_cast<std::size_t>(p.kernel.volume()))) {
    const Extent3 widest = p.span() + (pieces.extent - Extent3::all(1)) * p.stride;
    x = 64 * static_cast<std::size_t>(sides.x.blocks(widest.z * widest.y * p.input.x));
    dy = 64 * static_cast<std::size_t>(sides.dy.blocks(volume(pieces.extent)));
    row = 64 * static_cast<std::size_t>(std::max(p.input.x, pieces.extent.x));
  }
  std::size_t all() const { return x + dy + row + taps; }
  std::size_t x, dy, row, taps;
};

/// Both sides, with the scratch that holds one of their pieces.
template <class T>
class StagedSides {
 public:
  StagedSides(const ConvProblem& p, const WeightPieces& pieces, const GroupSides<T>& sides, const BoxKernels<T>& boxes,
              std::pmr::memory_resource* memory)
      : x(sides.x),
        dy(sides.dy),
        boxes_(boxes),
        bytes_(p, pieces, sides),
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

  /// Calls body(in, out) for all pairs of the group. `out` is the first of two blocks of dy.
  template <class Body>
  void for_each_pair(const Body& body) const {
    for (index_t in = group_.first_in; in < group_.last_in; ++in) {
      for (index_t out = group_.first_out; out < group_.last_out; out += 2) body(in, out);
    }
  }

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

  /// Sums one tap after the other. The squares of the second block of dy lie `column` elements behind those of the
  /// first.
  void sum_pair(index_t in, index_t out, bool add, T* sums, std::ptrdiff_t column) {
    ChannelProduct<T> product{.x = nullptr,
                              .x_strides = sides_.x.strides() * p_.stride,
                              .dy = nullptr,
                              .dy_strides = sides_.dy.strides(),
                              .dy_column = sides_.dy.step(),
                              .sums = sums,
                              .sums_column = column,
                              .count = {},
                              .channels = std::min(layout_.block, p_.in_channels - in * layout_.block),
                              .columns = std::min<index_t>(2, group_.last_out - out),
                              .add = add,
                              .next = {},
                              .next_strides = {}};
    const std::ptrdiff_t x = (in - group_.first_in) * sides_.x.step(), dy = (out - group_.first_out) * sides_.dy.step();
    for (index_t i = 0; i < layout_.taps; ++i, product.sums += layout_.square) {
      const PieceTap<T>& tap = sides_.taps()[i];
      product.count = tap.count;
      if (tap.count.z <= 0 || tap.count.y <= 0 || tap.count.x <= 0) {
        for (index_t c = 0; c < product.columns && !add; ++c) {
          std::fill_n(product.sums + c * column, layout_.square, T{0});
        }
        continue;
      }
      product.x = tap.x + x;
      product.dy = tap.dy + dy;
      for (std::size_t n = 0; n < product.next.size(); ++n) fetch_next(product, n, tap);
      products_.channels(product);
    }
  }

 private:
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

}  // namespace

template <class T>
WeightGradient<T>::WeightGradient(const ConvProblem& p)
    : problem_(p),
      layout_{.terms = p.in_channels, .lanes = p.out_channels, .taps = p.kernel.volume()},
      non_temporal_(writes_copies_non_temporal(layout_)),
      pieces_(choose_pieces(p, layout_.term_blocks(), layout_.lane_blocks())) {}

template <class T>
PairGroup WeightGradient<T>::group(index_t part, index_t in, index_t out) const noexcept {
  const index_t pairs = (layout_.lane_blocks() + 1) / 2, ins = layout_.term_blocks();
  return {.part = part,
          .first_in = ins * in / pieces_.in_groups,
          .last_in = ins * (in + 1) / pieces_.in_groups,
          .first_out = 2 * (pairs * out / pieces_.out_groups),
          .last_out = std::min(layout_.lane_blocks(), 2 * (pairs * (out + 1) / pieces_.out_groups))};
}

template <class T>
std::size_t WeightGradient<T>::scratch_bytes(const GradientTensors<T>& a, const PairGroup& g) const {
  const std::size_t staged = StagedBytes<T>(problem_, pieces_, GroupSides<T>(problem_, a, g)).all();
  return at_once() ? staged + pair_bytes() + finish_scratch_bytes() : staged;
}

template <class T>
void WeightGradient<T>::sum(const GradientTensors<T>& a, const PairGroup& g, T* sums) const {
  sums += g.part * layout_.elements();
  StagedSides<T> staged(problem_, pieces_, GroupSides<T>(problem_, a, g), kernels_.boxes, a.memory);
  PieceSum<T> sum(problem_, layout_, g, staged, kernels_.products);
  const index_t first = pieces_.first_piece(g.part), end = pieces_.first_piece(g.part + 1);
  for (index_t piece = first; piece < end; ++piece) {
    const Box box = pieces_.box(piece, a.low_res.shape.extent);
    const index_t n = piece / pieces_.per_sample();
    const bool last = piece + 1 == end || (piece + 1) / pieces_.per_sample() != n;
    staged.load(n, input_window(problem_, box), box);
    sum.start(box, last ? box : pieces_.box(piece + 1, a.low_res.shape.extent));
    sum.for_each_pair([&](index_t in, index_t out) {
      sum.sum_pair(in, out, piece > first, sums + layout_.offset(out, in, 0), layout_.column_step());
    });
  }
}

template <class T>
void WeightGradient<T>::write(const BackwardArguments& arguments, const GradientTensors<T>& a,
                              const PairGroup& g) const {
  StagedSides<T> staged(problem_, pieces_, GroupSides<T>(problem_, a, g), kernels_.boxes, a.memory);
  Scratch scratch(a.memory, pair_bytes() + finish_scratch_bytes());
  T* sums = scratch.take<T>(pair_bytes());
  T* rows = scratch.take<T>(finish_scratch_bytes());
  PieceSum<T> sum(problem_, layout_, g, staged, kernels_.products);
  const Box box = pieces_.box(0, a.low_res.shape.extent);
  staged.load(0, input_window(problem_, box), box);
  sum.start(box, box);
  const index_t column = layout_.taps * layout_.square;
  sum.for_each_pair([&](index_t in, index_t out) {
    sum.sum_pair(in, out, false, sums, column);
    for (index_t i = out; i < std::min(out + 2, g.last_out); ++i) {
      kernels_.squares.unpack(sums + (i - out) * column, layout_, i, in, arguments.add_dw, non_temporal_,
                              arguments.dw.as<T>(), rows);
    }
  });
}

template <class T>
void WeightGradient<T>::finish(const BackwardArguments& a, index_t pair, T* sums) const {
  const index_t out = pair / layout_.term_blocks(), in = pair % layout_.term_blocks();
  const index_t count = layout_.block * std::min(layout_.block, problem_.in_channels - in * layout_.block);
  T* total = sums + layout_.offset(out, in, 0);
  for (index_t part = 1; part < pieces_.parts; ++part) {
    const T* other = total + part * layout_.elements();
    for (index_t tap = 0; tap < layout_.taps; ++tap) {
      for (index_t i = tap * layout_.square; i < tap * layout_.square + count; ++i) total[i] += other[i];
    }
  }
  Scratch scratch(a.memory, finish_scratch_bytes());
  kernels_.squares.unpack(total, layout_, out, in, a.add_dw, non_temporal_, a.dw.as<T>(),
                          scratch.take<T>(finish_scratch_bytes()));
}

template class WeightGradient<float>;
template class WeightGradient<double>;

}  // namespace convolume::conv
