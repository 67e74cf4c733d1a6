// Distinct elements that an interval of iterations touches. In the order of a nest, an interval is a union of at most
// 2 * loops + 1 boxes, and each box touches a product of sets along the axes of a tensor. The union of the products is
// counted by coordinate compression.
#include <algorithm>
#include <bitset>
#include <limits>
#include <unordered_map>

#include <fmt/format.h>

#include "convolume/nest.hpp"
#include "plan/nest/axis_sets.hpp"
#include "plan/nest/index_of.hpp"
#include "plan/nest/nest_text.hpp"

namespace convolume::plan {
namespace {

using Mask = std::bitset<2 * most_loops + 1>;  // of boxes

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

/// Returns the iterations from `first` to `last` as boxes.
std::vector<Box> boxes_between(const NestSpace& space, const std::vector<BoundLoop>& loops,
                               std::span<const index_t> first, std::span<const index_t> last) {
  std::vector<Box> boxes;
  const auto add = [&](std::span<const index_t> prefix, std::size_t fixed, index_t begin, index_t end) {
    BoxOf box(space);
    for (std::size_t i = 0; i < fixed; ++i) box.restrict(loops[i], prefix[i], prefix[i] + 1);
    if (fixed < loops.size()) box.restrict(loops[fixed], begin, end);
    if (!box.empty()) boxes.push_back(box.box());
  };
  std::size_t common = 0;
  while (common < loops.size() && first[common] == last[common]) ++common;
  add(first, loops.size(), 0, 0);
  if (common == loops.size()) return boxes;
  for (std::size_t i = loops.size(); i-- > common + 1;) add(first, i, first[i] + 1, to_the_end);
  add(first, common, first[common] + 1, last[common]);
  for (std::size_t i = common + 1; i < loops.size(); ++i) add(last, i, 0, last[i]);
  add(last, loops.size(), 0, 0);
  return boxes;
}

/// One axis of a tensor: how many positions are in each combination of boxes.
using Axis = std::unordered_map<Mask, index_t>;

/// Returns the combinations along an axis, if box i has the positions sets[i].
Axis compress(const std::vector<std::vector<Range>>& sets) {
  struct Edge {
    index_t at;
    std::size_t box;
  };
  std::vector<Edge> edges;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    for (const Range& range : sets[i]) {
      edges.push_back({range.begin, i});
      edges.push_back({range.end, i});
    }
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.at < b.at; });
  Axis axis;
  Mask inside;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    inside.flip(edges[i].box);
    if (i + 1 < edges.size() && inside.any() && edges[i + 1].at > edges[i].at) {
      axis[inside] += edges[i + 1].at - edges[i].at;
    }
  }
  return axis;
}

/// Counts the positions of a product of axes that lie in a box. `boxes` are the boxes that the outer axes admit.
class Union {
 public:
  explicit Union(std::vector<Axis> axes) : axes_(std::move(axes)), known_(axes_.size()) {}

  index_t count(const Mask& boxes, std::size_t axis = 0) {
    if (boxes.none()) return 0;
    if (axis == axes_.size()) return 1;
    const auto found = known_[axis].find(boxes);
    if (found != known_[axis].end()) return found->second;
    index_t sum = 0;
    for (const auto& [mask, positions] : axes_[axis]) sum += positions * count(boxes & mask, axis + 1);
    return known_[axis][boxes] = sum;
  }

 private:
  std::vector<Axis> axes_;
  std::vector<std::unordered_map<Mask, index_t>> known_;
};

index_t distinct(const NestSpace& space, const std::vector<Box>& boxes, Operand operand) {
  std::vector<Axis> axes;
  const auto add = [&](const auto& set_of) {
    std::vector<std::vector<Range>> sets;
    for (const Box& box : boxes) sets.push_back(set_of(box));
    axes.push_back(compress(sets));
  };
  const auto add_dim = [&](Dim dim) { add([dim](const Box& box) { return std::vector{of(box, dim)}; }); };
  if (operand != Operand::w) add_dim(Dim::n);
  if (operand != Operand::x) add_dim(Dim::k);
  if (operand != Operand::y) add_dim(Dim::c);
  for (int axis = 0; axis < 3; ++axis) {
    const auto results = static_cast<Dim>(index_of(Dim::z) + static_cast<std::size_t>(axis));
    const auto taps = static_cast<Dim>(index_of(Dim::kz) + static_cast<std::size_t>(axis));
    if (operand == Operand::w) {
      add_dim(taps);
    } else if (operand != space.windowed) {
      add_dim(results);
    } else {
      add([&](const Box& box) { return windowed_set(space, axis, of(box, results), of(box, taps)); });
    }
  }
  Mask all;
  for (std::size_t i = 0; i < boxes.size(); ++i) all.set(i);
  return Union(std::move(axes)).count(all);
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
  const std::vector<Box> boxes = boxes_between(space, loops, first, last);
  return {.x = distinct(space, boxes, Operand::x),
          .w = distinct(space, boxes, Operand::w),
          .y = distinct(space, boxes, Operand::y)};
}

}  // namespace convolume::plan
