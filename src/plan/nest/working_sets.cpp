// Distinct elements that an interval of iterations touches. In the order of a nest, an interval is a union of at most
// 2 * loops + 1 boxes, and each box touches a product of sets along the axes of a tensor. The union of the products is
// counted by coordinate compression.
#include "plan/nest/working_sets.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "plan/nest/axis_sets.hpp"
#include "plan/nest/index_of.hpp"
#include "plan/nest/nest_text.hpp"

namespace convolume::plan {
namespace {

/// A set of boxes. It is not a std::bitset, because sorting brings equal sets together.
class Mask {
 public:
  void set(std::size_t box) { words_[box / bits] |= std::uint64_t{1} << (box % bits); }
  bool any() const {
    return std::any_of(words_.begin(), words_.end(), [](std::uint64_t word) { return word != 0; });
  }
  Mask operator&(const Mask& other) const {
    Mask both;
    for (std::size_t i = 0; i < words_.size(); ++i) both.words_[i] = words_[i] & other.words_[i];
    return both;
  }
  void flip(const Mask& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] ^= other.words_[i];
  }
  friend bool operator==(const Mask&, const Mask&) = default;
  friend auto operator<=>(const Mask&, const Mask&) = default;

 private:
  static constexpr std::size_t bits = 64;
  std::array<std::uint64_t, (2 * most_loops + 1 + bits - 1) / bits> words_{};
};

/// A box of iterations.
using Box = std::array<Range, all_dims.size()>;

const Range& of(const Box& box, Dim dim) { return box[index_of(dim)]; }
constexpr index_t to_the_end = std::numeric_limits<index_t>::max();

/// The positions of some loops, from `begin` to before `end`; all positions of the others.
class BoxOf {
 public:
  explicit BoxOf(const NestSpace& space) {
    for (std::size_t i = 0; i < box_.size(); ++i) box_[i] = {0, space.extent[i]};
  }
  void restrict(const BoundLoop& loop, index_t begin, index_t end) {
    Range& range = box_[index_of(loop.dim)];
    const index_t trips = (range.size() + loop.step - 1) / loop.step;
    const index_t first = range.begin + std::min(begin, trips) * loop.step;
    range = {first, end >= trips ? range.end : std::min(range.end, range.begin + end * loop.step)};
  }
  bool empty() const {
    return std::any_of(box_.begin(), box_.end(), [](const Range& range) { return range.size() == 0; });
  }
  const Box& box() const { return box_; }

 private:
  Box box_;
};

/// Returns the deepest loop, behind `common`, of which not all iterations belong to the interval: those from `at` on
/// (`behind`), or those up to `at`. Without one, returns `common`.
std::size_t deepest_cut(const NestSpace& space, std::span<const BoundLoop> loops, std::span<const index_t> at,
                        std::size_t common, bool behind) {
  std::size_t deepest = common;
  Extents left = space.extent;
  for (std::size_t i = 0; i < loops.size(); ++i) {
    index_t& size = left[index_of(loops[i].dim)];
    const index_t trips = (size + loops[i].step - 1) / loops[i].step;
    if (i > common && at[i] != (behind ? 0 : trips - 1)) deepest = i;
    size = std::min(loops[i].step, size - at[i] * loops[i].step);
  }
  return deepest;
}

/// Adds the iterations from `at` on (`behind`), or up to `at`, that have the positions of `at` in the loops up to and
/// including `common`. `deepest` is deepest_cut().
void add_boxes(const NestSpace& space, std::span<const BoundLoop> loops, std::span<const index_t> at,
               std::size_t common, std::size_t deepest, bool behind, std::vector<Box>& boxes) {
  BoxOf prefix(space);
  for (std::size_t i = 0; i <= deepest; ++i) {
    const index_t own = i == deepest ? 1 : 0;  // the innermost cut includes the position itself
    BoxOf box = prefix;
    if (behind) {
      box.restrict(loops[i], at[i] + 1 - own, to_the_end);
    } else {
      box.restrict(loops[i], 0, at[i] + own);
    }
    if (i > common && !box.empty()) boxes.push_back(box.box());
    prefix.restrict(loops[i], at[i], at[i] + 1);
  }
}

/// Writes the iterations from `first` to `last` as boxes.
void write_boxes(const NestSpace& space, std::span<const BoundLoop> loops, std::span<const index_t> first,
                 std::span<const index_t> last, std::vector<Box>& boxes) {
  boxes.clear();
  const auto common =
      static_cast<std::size_t>(std::mismatch(first.begin(), first.end(), last.begin()).first - first.begin());
  BoxOf between(space);
  for (std::size_t i = 0; i < common; ++i) between.restrict(loops[i], first[i], first[i] + 1);
  if (common < loops.size()) {
    const std::size_t from = deepest_cut(space, loops, first, common, true);
    const std::size_t to = deepest_cut(space, loops, last, common, false);
    if (from > common) add_boxes(space, loops, first, common, from, true, boxes);
    if (to > common) add_boxes(space, loops, last, common, to, false, boxes);
    between.restrict(loops[common], first[common] + (from > common ? 1 : 0), last[common] + (to > common ? 0 : 1));
  }
  if (!between.empty()) boxes.push_back(between.box());
}

/// Positions that lie in the same boxes.
struct Part {
  Mask boxes;
  index_t positions = 0;
};
/// One axis of a tensor, or the product of some axes: the number of positions in each combination of boxes.
using Parts = std::vector<Part>;

/// Makes each combination of boxes stand once.
void merge(Parts& parts) {
  if (parts.size() < 2) return;
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.boxes < b.boxes; });
  std::size_t last = 0;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].boxes == parts[last].boxes) {
      parts[last].positions += parts[i].positions;
    } else {
      parts[++last] = parts[i];
    }
  }
  parts.resize(last + 1);
}

void check_iteration(const LoopNest& nest, const NestSpace& space, const std::vector<BoundLoop>& loops,
                     std::span<const index_t> positions, const char* name) {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(fmt::format("nest '{}': the {} iteration {}", to_string(nest), name, why));
  };
  if (positions.size() != loops.size()) {
    refuse(fmt::format("has {} positions; give one for each of the {} loops", positions.size(), loops.size()));
  }
  BoxOf box(space);
  for (std::size_t i = 0; i < loops.size(); ++i) {
    box.restrict(loops[i], positions[i], positions[i] + 1);
    if (positions[i] < 0 || box.empty()) {
      refuse(fmt::format("is at {} in loop {} '{}', outside of it; positions count trips from 0", positions[i], i + 1,
                         to_string(nest.loops[i])));
    }
  }
}

}  // namespace

class WorkingSets::Counter {
 public:
  Counter(const NestSpace& space, std::span<const BoundLoop> loops) : space_(space), loops_(loops) {}

  void set_interval(std::span<const index_t> first, std::span<const index_t> last) {
    write_boxes(space_, loops_, first, last, boxes_);
    all_ = {};
    for (std::size_t i = 0; i < boxes_.size(); ++i) all_.set(i);
  }

  index_t distinct(Operand operand) {
    product_.assign(1, {all_, 1});
    if (operand != Operand::w) multiply(Dim::n);
    if (operand != Operand::x) multiply(Dim::k);
    if (operand != Operand::y) multiply(Dim::c);
    for (int axis = 0; axis < 3; ++axis) {
      if (operand == space_.windowed) {
        multiply_windowed(axis);
      } else {
        multiply(operand == Operand::w ? tap_dim(axis) : result_dim(axis));
      }
    }
    index_t sum = 0;
    for (const Part& part : product_) sum += part.positions;
    return sum;
  }

 private:
  /// What decides the positions of a box along an axis.
  using Key = std::array<Range, 2>;
  struct Edge {
    index_t at;
    std::size_t key;
  };

  void multiply(Dim dim) {
    multiply(
        [dim](const Box& box) {
          return Key{of(box, dim), Range{}};
        },
        [](const Key& key, const auto& add) { add(key[0]); });
  }

  void multiply_windowed(int axis) {
    const Dim results = result_dim(axis), taps = tap_dim(axis);
    multiply(
        [&](const Box& box) {
          return Key{of(box, results), of(box, taps)};
        },
        [&](const Key& key, const auto& add) {
          for (const Range& range : windowed_phases(space_, axis, key[0], key[1])) add(range);
        });
  }

  /// Multiplies the product by an axis. for_each_range(key, add) lists the positions of the boxes with a key, as ranges
  /// that are not empty and do not overlap.
  template <class KeyOf, class ForEachRange>
  void multiply(const KeyOf& key_of, const ForEachRange& for_each_range) {
    keys_.clear();
    masks_.clear();
    for (std::size_t i = 0; i < boxes_.size(); ++i) {
      const Key key = key_of(boxes_[i]);
      const auto found = static_cast<std::size_t>(std::find(keys_.begin(), keys_.end(), key) - keys_.begin());
      if (found == keys_.size()) {
        keys_.push_back(key);
        masks_.emplace_back();
      }
      masks_[found].set(i);
    }
    if (keys_.size() > 1) {
      multiply_keys(for_each_range);
      return;
    }
    index_t positions = 0;
    for_each_range(keys_[0], [&](const Range& range) { positions += range.size(); });
    for (Part& part : product_) part.positions *= positions;
  }

  template <class ForEachRange>
  void multiply_keys(const ForEachRange& for_each_range) {
    edges_.clear();
    for (std::size_t key = 0; key < keys_.size(); ++key) {
      for_each_range(keys_[key], [&](const Range& range) {
        edges_.push_back({range.begin, key});
        edges_.push_back({range.end, key});
      });
    }
    std::sort(edges_.begin(), edges_.end(), [](const Edge& a, const Edge& b) { return a.at < b.at; });
    axis_.clear();
    Mask inside;
    for (std::size_t i = 0; i + 1 < edges_.size(); ++i) {
      inside.flip(masks_[edges_[i].key]);
      const index_t positions = edges_[i + 1].at - edges_[i].at;
      if (positions > 0 && inside.any()) axis_.push_back({inside, positions});
    }
    merge(axis_);
    next_.clear();
    for (const Part& a : product_) {
      for (const Part& b : axis_) {
        const Mask both = a.boxes & b.boxes;
        if (both.any()) next_.push_back({both, a.positions * b.positions});
      }
    }
    merge(next_);
    product_.swap(next_);
  }

  const NestSpace& space_;
  std::span<const BoundLoop> loops_;
  std::vector<Box> boxes_;
  Mask all_;
  Parts product_, axis_, next_;
  std::vector<Key> keys_;
  std::vector<Mask> masks_;  // of the boxes with each key
  std::vector<Edge> edges_;
};

WorkingSets::WorkingSets(const NestSpace& space, std::span<const BoundLoop> loops)
    : counter_(std::make_unique<Counter>(space, loops)) {}
WorkingSets::~WorkingSets() = default;

Words WorkingSets::between(std::span<const index_t> first, std::span<const index_t> last) {
  counter_->set_interval(first, last);
  return {
      .x = counter_->distinct(Operand::x), .w = counter_->distinct(Operand::w), .y = counter_->distinct(Operand::y)};
}

Words working_set(const LoopNest& nest, const NestSpace& space, std::span<const index_t> first,
                  std::span<const index_t> last) {
  const std::vector<BoundLoop> loops = bind(nest, space);
  if (loops.size() > most_loops) {
    throw InvalidArgument(
        fmt::format("nest '{}' has {} loops; use at most {}", to_string(nest), loops.size(), most_loops));
  }
  check_iteration(nest, space, loops, first, "first");
  check_iteration(nest, space, loops, last, "last");
  if (std::lexicographical_compare(last.begin(), last.end(), first.begin(), first.end())) {
    throw InvalidArgument(
        fmt::format("nest '{}': the last iteration comes before the first; swap them", to_string(nest)));
  }
  return WorkingSets(space, loops).between(first, last);
}

}  // namespace convolume::plan
