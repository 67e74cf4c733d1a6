#include "conv/direct_weights.hpp"

#include <algorithm>

#include "conv/block_box.hpp"
#include "conv/direct_product.hpp"
#include "conv/prepared.hpp"

namespace convolume::conv {
namespace {

/// One side of a piece: blocks [first, last) of a tensor's voxels, in place where they are blocked as they are needed.
template <class T>
class PieceSide {
 public:
  static constexpr index_t block = fft::tile_lanes<T>;

  PieceSide(const View<const T>& tensor, Layout layout, index_t first, index_t last)
      : tensor_(tensor), layout_(layout), first_(first), last_(last) {}
  /// Multiplied by the activation's gradient at y.
  void set_gradient(const Activation& activation, const View<const T>& y) {
    activation_ = &activation;
    y_ = y;
  }

  bool in_place() const { return layout_ == Layout::blocked && activation_ == nullptr; }
  index_t blocks(index_t voxels) const { return in_place() ? 0 : (last_ - first_) * voxels; }

  void load(index_t n, const Box& box, T* staged, T* row) {
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
      load_box(source, staged + (i - first_) * step_, row);
    }
    data_ = staged;
    origin_ = box.begin;
    strides_ = {block, e.x * block, e.y * e.x * block};
  }

  const T* at(index_t channel_block, const Extent3& i) const {
    const Extent3 from = i - origin_;
    return data_ + (channel_block - first_) * step_ + from.z * strides_.plane + from.y * strides_.row +
           from.x * strides_.voxel;
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
struct Sides {
  Sides(const ConvProblem& p, const PieceTensors<T>& a, const PairGroup& g)
      : x(a.fine, p.x_layout, g.first_in, g.last_in), dy(a.coarse, p.y_layout, g.first_out, g.last_out) {
    if (a.activation != nullptr) (a.y_is_fine ? x : dy).set_gradient(*a.activation, a.y);
  }
  PieceSide<T> x, dy;
};

/// What is staged of the largest piece, and a row beside it.
struct StagedBytes {
  template <class T>
  StagedBytes(const ConvProblem& p, const WeightPieces& pieces, const Sides<T>& sides) {
    const Extent3 widest = p.span() + (pieces.extent - Extent3::all(1)) * p.stride;
    x = 64 * static_cast<std::size_t>(sides.x.blocks(widest.z * widest.y * p.input.x));
    dy = 64 * static_cast<std::size_t>(sides.dy.blocks(volume(pieces.extent)));
    row = 64 * static_cast<std::size_t>(std::max(p.input.x, pieces.extent.x));
  }
  std::size_t all() const { return x + dy + row; }
  std::size_t x, dy, row;
};

/// Adds a part's pieces to its sums, one after the other.
template <class T>
class PieceSum {
 public:
  PieceSum(const ConvProblem& p, const WeightBlocks<T>& layout, const PairGroup& group, const PieceSide<T>& x,
           const PieceSide<T>& dy, T* sums)
      : p_(p), layout_(layout), group_(group), x_(x), dy_(dy), sums_(sums) {}

  /// Tap by tap; meanwhile the voxels of `next`, of the same sample, are fetched where they are read in place.
  void add(const Box& box, const Box& next) {
    ahead_ = next.begin - box.begin;
    fetched_ = 0;
    for (index_t in = group_.first_in; in < group_.last_in; ++in) {
      for (index_t out = group_.first_out; out < group_.last_out; out += 2) {
        for (index_t tap = 0; tap < layout_.taps; ++tap) add_tap(box, in, out, tap);
      }
    }
  }

 private:
  void add_tap(const Box& box, index_t in, index_t out, index_t tap) {
    const Extent3& k = p_.kernel;
    const Extent3 at{tap / (k.y * k.x), tap / k.x % k.y, tap % k.x};
    const Box inside = tapped(p_, box, at);
    const Extent3 count = inside.extent();
    if (count.z <= 0 || count.y <= 0 || count.x <= 0) return;
    const Extent3 from = inside.begin * p_.stride + at * p_.dilation - p_.pad_before;
    ChannelProduct<T> product{.x = x_.at(in, from),
                              .x_strides = x_.strides() * p_.stride,
                              .dy = dy_.at(out, inside.begin),
                              .dy_strides = dy_.strides(),
                              .dy_column = dy_.step(),
                              .sums = sums_ + layout_.offset(out, in, tap),
                              .sums_column = layout_.column_step(),
                              .count = count,
                              .channels = std::min(layout_.block, p_.in_channels - in * layout_.block),
                              .columns = std::min<index_t>(2, group_.last_out - out),
                              .next = {},
                              .next_strides = {}};
    for (std::size_t i = 0; i < product.next.size(); ++i) fetch_next(product, i, from, inside.begin);
    multiply(product);
  }

  /// The next channel block of x or dy that was not asked for yet; or, at the end, something that is there already.
  void fetch_next(ChannelProduct<T>& product, std::size_t i, const Extent3& from, const Extent3& begin) {
    const index_t ins = group_.last_in - group_.first_in, outs = group_.last_out - group_.first_out;
    product.next[i] = product.dy;
    product.next_strides[i] = product.dy_strides;
    if (ahead_ == Extent3{0, 0, 0}) return;
    const index_t block = fetched_++;
    if (block < ins && x_.in_place()) {
      product.next[i] = x_.at(group_.first_in + block, from + ahead_ * p_.stride);
      product.next_strides[i] = product.x_strides;
    } else if (block >= ins && block < ins + outs && dy_.in_place()) {
      product.next[i] = dy_.at(group_.first_out + block - ins, begin + ahead_);
    }
  }

  const ConvProblem& p_;
  const WeightBlocks<T>& layout_;
  const PairGroup& group_;
  const PieceSide<T>& x_;
  const PieceSide<T>& dy_;
  T* sums_;
  Extent3 ahead_{0, 0, 0};
  index_t fetched_ = 0;  // channel blocks of the next piece
};

}  // namespace

template <class T>
WeightGradient<T>::WeightGradient(const ConvProblem& p)
    : problem_(p),
      layout_{.terms = p.in_channels, .lanes = p.out_channels, .taps = p.kernel.volume()},
      past_caches_(passes_caches(layout_)),
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
std::size_t WeightGradient<T>::scratch_bytes(const PieceTensors<T>& a, const PairGroup& g) const {
  return StagedBytes(problem_, pieces_, Sides<T>(problem_, a, g)).all();
}

template <class T>
void WeightGradient<T>::sum(const PieceTensors<T>& a, const PairGroup& g, T* sums) const {
  sums += g.part * layout_.elements();
  const index_t squares = (g.last_in - g.first_in) * layout_.taps * layout_.square;
  for (index_t out = g.first_out; out < g.last_out; ++out) {
    std::fill_n(sums + layout_.offset(out, g.first_in, 0), squares, T{0});
  }
  const Sides<T> sides(problem_, a, g);
  PieceSide<T> x = sides.x, dy = sides.dy;
  const StagedBytes bytes(problem_, pieces_, sides);
  Scratch scratch(a.memory, bytes.all());
  T* staged_x = scratch.take<T>(bytes.x);
  T* staged_dy = scratch.take<T>(bytes.dy);
  T* row = scratch.take<T>(bytes.row);
  PieceSum<T> sum(problem_, layout_, g, x, dy, sums);
  const index_t end = pieces_.first_piece(g.part + 1);
  for (index_t piece = pieces_.first_piece(g.part); piece < end; ++piece) {
    const Box box = pieces_.box(piece, a.coarse.shape.extent);
    const index_t n = piece / pieces_.per_sample();
    const bool last = piece + 1 == end || (piece + 1) / pieces_.per_sample() != n;
    x.load(n, met(problem_, box), staged_x, row);
    dy.load(n, box, staged_dy, row);
    sum.add(box, last ? box : pieces_.box(piece + 1, a.coarse.shape.extent));
  }
}

template <class T>
void WeightGradient<T>::finish(const BackwardArguments& a, index_t pair, T* sums) const {
  const index_t out = pair / layout_.term_blocks(), in = pair % layout_.term_blocks();
  const index_t count = layout_.taps * layout_.square;
  T* total = sums + layout_.offset(out, in, 0);
  for (index_t part = 1; part < pieces_.parts; ++part) {
    const T* other = total + part * layout_.elements();
    for (index_t i = 0; i < count; ++i) total[i] += other[i];
  }
  Scratch scratch(a.memory, finish_scratch_bytes());
  unpack_weights(static_cast<const T*>(total), layout_, out, in, a.add_dw, past_caches_, a.dw.as<T>(),
                 scratch.take<T>(finish_scratch_bytes()));
}

template class WeightGradient<float>;
template class WeightGradient<double>;

}  // namespace convolume::conv
