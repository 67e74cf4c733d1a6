#include "conv/direct/pass_lists.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "conv/caches/cache_lines.hpp"
#include "convolume/error.hpp"

namespace convolume::conv {
namespace {

using plan::Dim;

/// Limit for the lists of a task. A nest with a list for each of millions of tiny tiles is refused.
constexpr std::size_t most_list_bytes = 64 << 20;

/// Returns the bytes that `count` items take in the scratch.
template <class Item>
std::size_t bytes_of(index_t count) {
  return whole_lines(static_cast<std::size_t>(count) * sizeof(Item));
}

/// Returns the number of taps of all term blocks of a product.
template <class T>
index_t taps_of_product(const VoxelDirection<T>& d) {
  return d.nest.product_blocks * d.weights.taps;
}

/// Returns the tile number i of those that begin at `begins`. The last one goes to the end.
LoopRange tile_range(const std::vector<index_t>& begins, std::size_t i) {
  return {begins[i], i + 1 < begins.size() ? begins[i + 1] : std::numeric_limits<index_t>::max() / 2};
}

/// Returns the voxels of a tile of a region's results. The tile may extend beyond the region.
template <class T>
Box tile_box(const VoxelDirection<T>& d, const Region& region, const std::array<LoopRange, 3>& tile) {
  Box box;
  for (int axis = 0; axis < 3; ++axis) {
    const LoopRange& range = tile[static_cast<std::size_t>(axis)];
    const index_t step = d.map.target_step()[axis], voxels = region.box.extent()[axis];
    box.begin[axis] = region.box.begin[axis] + std::min(voxels, range.begin * step);
    box.end[axis] = region.box.begin[axis] + (range.end > voxels / step ? voxels : range.end * step);
  }
  return box;
}

/// Returns whether the single term of `next` reads the voxel and the weights behind those of `step`. If voxels lie at
/// least a block apart, kernels read the weights of the next term a block further; `weights_tap` is a block then.
bool continues_row(const DirectStep& step, const DirectStep& next, std::ptrdiff_t weights_tap) {
  return step.taps == 1 && next.taps == 1 && next.source == step.source + step.terms &&
         next.weights == step.weights + step.terms * weights_tap;
}

/// Returns how many terms of all steps are summed together (see VoxelProduct).
index_t neighbours_of(std::span<const DirectStep> steps) {
  for (const int together : {7, 5, 4, 3, 2}) {
    if (std::all_of(steps.begin(), steps.end(), [=](const DirectStep& s) { return s.terms % together == 0; })) {
      return together;
    }
  }
  return 1;
}

}  // namespace

template <class T>
typename PassLists<T>::Count PassLists<T>::count(const VoxelDirection<T>& d, const Region& region) {
  Count most;
  const auto tap_tiles = static_cast<index_t>(d.nest.tap_tiles());
  most.lists = tap_tiles;
  for (std::size_t i = 0; i < 3; ++i) most.lists *= std::ssize(d.nest.begins[i]);
  const auto& begins = d.nest.begins;
  for (std::size_t z = 0; z < begins[0].size(); ++z) {
    for (std::size_t y = 0; y < begins[1].size(); ++y) {
      for (std::size_t x = 0; x < begins[2].size(); ++x) {
        const Box box =
            tile_box(d, region, {tile_range(begins[0], z), tile_range(begins[1], y), tile_range(begins[2], x)});
        for (const DirectPhase& phase : d.map.phases()) {
          const index_t steps = d.nest.product_blocks * std::ssize(phase.taps);
          d.map.for_each_equal_run(phase, box, [&](const Extent3&, const Extent3&) {
            most.passes += tap_tiles;
            most.steps += steps;
          });
        }
      }
    }
  }
  return most;
}

template <class T>
std::size_t PassLists<T>::list_bytes(const Count& most) {
  return bytes_of<PassList>(most.lists) + bytes_of<Pass>(most.passes) + bytes_of<DirectStep>(most.steps);
}

template <class T>
std::size_t PassLists<T>::scratch_bytes(const VoxelDirection<T>& d, const Count& most) {
  return list_bytes(most) + bytes_of<bool>(taps_of_product(d));
}

template <class T>
void PassLists<T>::check(const VoxelDirection<T>& d, const Region& region) {
  double tiles = 1;
  for (const std::vector<index_t>& begins : d.nest.begins) tiles *= static_cast<double>(begins.size());
  if (tiles * sizeof(PassList) <= most_list_bytes && list_bytes(count(d, region)) <= most_list_bytes) return;
  throw Unsupported(fmt::format(
      "direct would keep lists of more than {} MiB for the {:.0f} tiles of a task; use larger tiles, or fewer loops "
      "before '|'",
      most_list_bytes >> 20, tiles));
}

template <class T>
PassLists<T>::PassLists(const VoxelDirection<T>& d, const Region& region, const Extent3& source, bool in_place,
                        bool reads_rows, const Count& most, Scratch& scratch)
    : d_(d),
      region_(region),
      source_width_(source.x),
      in_place_(in_place),
      reads_rows_(reads_rows),
      lists_(scratch.take<PassList>(bytes_of<PassList>(most.lists))),
      passes_(scratch.take<Pass>(bytes_of<Pass>(most.passes))),
      steps_(scratch.take<DirectStep>(bytes_of<DirectStep>(most.steps))),
      read_(scratch.take<bool>(bytes_of<bool>(taps_of_product(d)))) {
  std::fill_n(lists_, most.lists, PassList{});
}

template <class T>
const PassList& PassLists<T>::list(const LoopRanges& ranges, const BlockedBox<const T>& source,
                                   const BlockedBox<T>& target) {
  PassList& list = lists_[tile_index(ranges, 0, 3) * d_.nest.tap_tiles() + tile_index(ranges, 3, 6)];
  const LoopRange& terms = ranges[Dim::c];
  const index_t last_terms = std::min(block, d_.weights.terms - (terms.end - 1) * block);
  if (list.blocks != terms.size() || list.last_terms != last_terms) {
    make(list, {ranges, source, target}, terms.size(), last_terms);
  }
  return list;
}

/// Returns the index of the current tile of the dimensions [first, last) of those that have tiles.
template <class T>
std::size_t PassLists<T>::tile_index(const LoopRanges& ranges, std::size_t first, std::size_t last) const {
  constexpr std::array dims{Dim::z, Dim::y, Dim::x, Dim::kz, Dim::ky, Dim::kx};
  std::size_t index = 0;
  for (std::size_t i = first; i < last; ++i) {
    const std::vector<index_t>& begins = d_.nest.begins[i];
    if (begins.size() == 1) continue;
    const auto tile = std::lower_bound(begins.begin(), begins.end(), ranges[dims[i]].begin) - begins.begin();
    index = index * begins.size() + static_cast<std::size_t>(tile);
  }
  return index;
}

/// Returns whether a tap reads padding for this result of a row.
template <class T>
bool PassLists<T>::is_padding(const DirectTap& tap, const Extent3& base, index_t result) const {
  const index_t x = base.x + tap.offset.x + result * d_.map.source_step().x;
  return x < 0 || x >= source_width_;
}

/// Lists the passes of the current tile of results and taps.
template <class T>
void PassLists<T>::make(PassList& list, const Tile& tile, index_t blocks, index_t last_terms) {
  if (list.passes == nullptr) {
    list.passes = passes_ + pass_count_;
    list.steps = steps_ + step_count_;
  }
  const bool is_new = list.blocks == 0;
  std::fill_n(read_, taps_of_product(d_), false);
  list.count = 0;
  list.blocks = blocks;
  list.last_terms = last_terms;
  DirectStep* step = list.steps;
  const Box box = tile_box(d_, region_, {tile.ranges[Dim::z], tile.ranges[Dim::y], tile.ranges[Dim::x]});
  const auto* order = d_.step_orders.data() + tile_index(tile.ranges, 3, 6) * d_.map.phases().size();
  for (const DirectPhase& phase : d_.map.phases()) {
    d_.map.for_each_equal_run(phase, box, [&](const Extent3& begin, const Extent3& count) {
      add_run(list, tile, phase, *order, begin, count, step);
    });
    ++order;
  }
  if (!is_new) return;  // the first group of blocks has the most steps
  pass_count_ += list.count;
  step_count_ += step - list.steps;
}

/// Adds the pass of results that the same taps reach. If no tap of the first tile reaches them, a pass without steps
/// sets them to the bias.
template <class T>
void PassLists<T>::add_run(PassList& list, const Tile& tile, const DirectPhase& phase,
                           const std::vector<StepPlace>& order, const Extent3& begin, const Extent3& count,
                           DirectStep*& step) {
  const Extent3 base = d_.map.base(begin);
  Pass pass{.source = tile.source.offset(base - tile.source.origin),
            .target = tile.target.offset(begin - tile.target.origin),
            .count = count,
            .steps = step,
            .step_count = 0,
            .neighbours = 1,
            .row_taps = d_.nest.row_taps > 1 && !order.empty() ? order.front().taps : 1};
  if (phase.count.x > 1 && !phase.taps.empty()) {
    pass.source_tap = (phase.taps[1].offset.x - phase.taps[0].offset.x) * tile.source.strides.voxel;
    pass.weights_tap = (phase.taps[1].tap - phase.taps[0].tap) * d_.weights.square();
  }
  const bool pads = reads_padding(phase, base, count.x);
  // Steps may be parts of a row of taps.
  const bool whole_rows = pass.row_taps > 1 && pass.row_taps == phase.count.x;
  pass.fully_padded = pads && whole_rows && is_fully_padded(phase, base, count.x);
  for (const StepPlace& place : order) {
    const DirectTap& tap = phase.taps[static_cast<std::size_t>(place.tap)];
    if (place.block >= list.blocks || !d_.map.meets(tap, base)) continue;
    const index_t terms = place.block + 1 < list.blocks ? block : list.last_terms;
    if (!make_step(*step, tile, phase, place, base, pads ? count.x : 0, terms)) continue;
    if (step != pass.steps && reads_single_row() && continues_row(step[-1], *step, pass.weights_tap)) {
      ++step[-1].terms;
      continue;
    }
    const DirectStep& made = *step++;
    if (made.taps != pass.row_taps) pass.row_taps = 0;
  }
  pass.step_count = step - pass.steps;
  if (reads_single_row() && d_.map.source_step().x == 1) pass.neighbours = neighbours_of({pass.steps, step});
  if (pass.step_count > 0 || tile.ranges.is_first_tap_tile()) list.passes[list.count++] = pass;
}

/// Returns whether a tap of a phase reads padding in a row of `count` results. Taps are ordered along X.
template <class T>
bool PassLists<T>::reads_padding(const DirectPhase& phase, const Extent3& base, index_t count) const {
  if (phase.taps.empty()) return false;
  const DirectTap &first = phase.taps.front(), &last = phase.taps.back();
  return is_padding(first, base, 0) || is_padding(first, base, count - 1) || is_padding(last, base, 0) ||
         is_padding(last, base, count - 1);
}

/// Returns whether all taps of a row but one read padding for the first of `count` results and for the last one.
template <class T>
bool PassLists<T>::is_fully_padded(const DirectPhase& phase, const Extent3& base, index_t count) const {
  const auto reads_one = [&](index_t result) {
    const auto reads = [&](index_t i) { return !is_padding(phase.taps[static_cast<std::size_t>(i)], base, result); };
    index_t inside = 0;
    for (index_t i = 0; i < phase.count.x; ++i) inside += reads(i) ? 1 : 0;
    return inside == 1;
  };
  return reads_one(0) && reads_one(count - 1);
}

/// Makes the step of a place. `count` is the length of the row of results, or 0 if no tap reads padding along X. If
/// it is 1, taps that read padding are left out; returns false if none remains. The members are written one by one: a
/// copy of a whole step would wait for these stores.
template <class T>
bool PassLists<T>::make_step(DirectStep& step, const Tile& tile, const DirectPhase& phase, const StepPlace& place,
                             const Extent3& base, index_t count, index_t terms) const {
  const DirectTap* first = phase.taps.data() + place.tap;
  const DirectTap* last = first + place.taps;
  while (count == 1 && first != last && is_padding(*first, base, 0)) ++first;
  while (count == 1 && first != last && is_padding(last[-1], base, 0)) --last;
  if (first == last) return false;
  step.source = place.block * tile.source.block + tile.source.offset(first->offset);
  step.weights = d_.weights.offset(0, place.block, first->tap);
  step.reads_first = !std::exchange(read_[place.block * d_.weights.taps + first->tap], true);
  step.terms = static_cast<int>(terms);
  step.taps = static_cast<int>(last - first);
  step.pads_first = step.pads_last = 0;
  step.meets_first = place.meets_first >> static_cast<unsigned>(first - (phase.taps.data() + place.tap));
  // Padding in scratch is zero. Rows of taps multiply it, because they then share their voxels, and so do products of
  // a single channel.
  if (count == 0 || reads_rows_ || (place.taps > 1 && !in_place_)) return true;
  unsigned pads_first = 0, pads_last = 0, bit = 1;
  for (const DirectTap* tap = first; tap != last; ++tap, bit <<= 1U) {
    if (is_padding(*tap, base, 0)) pads_first |= bit;
    if (is_padding(*tap, base, count - 1)) pads_last |= bit;
  }
  step.pads_first = pads_first;
  step.pads_last = pads_last;
  return true;
}

template class PassLists<float>;
template class PassLists<double>;

}  // namespace convolume::conv
