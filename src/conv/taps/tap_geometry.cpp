#include "conv/taps/tap_geometry.hpp"

#include <algorithm>

namespace convolume::conv {
namespace {

using plan::Direction;

index_t floor_div(index_t a, index_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

/// Returns box number `i` of the boxes of whole rows that divide a domain.
Box box_of(index_t i, const Extent3& extent, const Extent3& count, const Extent3& domain) {
  const Extent3 begin{i / count.y * extent.z, i % count.y * extent.y, 0};
  return {begin, {std::min(begin.z + extent.z, domain.z), std::min(begin.y + extent.y, domain.y), domain.x}};
}

/// The taps along one axis that reach the results of a residue, with their offsets.
struct AxisTap {
  index_t offset, tap;
};
std::vector<AxisTap> axis_taps(const ConvProblem& p, int axis, bool to_input, index_t residue) {
  std::vector<AxisTap> taps;
  for (index_t j = 0; j < p.kernel[axis]; ++j) {
    const index_t reach = j * p.dilation[axis];
    if (!to_input) {
      taps.push_back({reach, j});
    } else if ((residue - reach) % p.stride[axis] == 0) {
      taps.push_back({floor_div(residue - reach, p.stride[axis]), j});
    }
  }
  return taps;
}

/// Marks the taps that read a voxel before the others do, if rows of results follow each other: those of the last rows,
/// and of the first voxels of these.
void mark_first(std::vector<DirectTap>& taps, const Extent3& step) {
  if (taps.empty()) return;
  index_t last = taps.front().offset.y, first = taps.front().offset.x;
  for (const DirectTap& tap : taps) {
    last = std::max(last, tap.offset.y);
    first = std::min(first, tap.offset.x);
  }
  for (DirectTap& tap : taps) tap.meets_first = tap.offset.y > last - step.y && tap.offset.x < first + step.x;
}

}  // namespace

index_t even(index_t n, index_t most) noexcept { return ceil_div(n, ceil_div(n, std::max<index_t>(1, most))); }

DirectMap::DirectMap(const ConvProblem& p, Direction direction, Taps taps)
    : to_input_(direction == Direction::backward_data),
      domain_(to_input_ ? p.input : p.output()),
      source_(to_input_ ? p.output() : p.input),
      source_step_(to_input_ ? Extent3::all(1) : p.stride),
      target_step_(to_input_ ? p.stride : Extent3::all(1)),
      span_(p.span()),
      stride_(p.stride),
      pad_(p.pad_before) {
  const Extent3& residues = target_step_;
  for (index_t i = 0; i < residues.z * residues.y * residues.x; ++i) {
    DirectPhase phase{.residue = {i / (residues.y * residues.x), i / residues.x % residues.y, i % residues.x},
                      .count = {},
                      .taps = {}};
    const auto z_taps = axis_taps(p, 0, to_input_, phase.residue.z),
               y_taps = axis_taps(p, 1, to_input_, phase.residue.y),
               x_taps = axis_taps(p, 2, to_input_, phase.residue.x);
    phase.count = {std::ssize(z_taps), std::ssize(y_taps), std::ssize(x_taps)};
    if (taps == Taps::listed) {
      phase.taps.reserve(static_cast<std::size_t>(phase.count.volume()));
      for (const AxisTap& z : z_taps) {
        for (const AxisTap& y : y_taps) {
          for (const AxisTap& x : x_taps) {
            phase.taps.push_back(
                {.offset = {z.offset, y.offset, x.offset}, .tap = (z.tap * p.kernel.y + y.tap) * p.kernel.x + x.tap});
          }
        }
      }
      mark_first(phase.taps, source_step_);
    }
    phases_.push_back(std::move(phase));
  }
}

Box DirectMap::window(const Box& results) const noexcept {
  Box box;
  for (int axis = 0; axis < 3; ++axis) {
    const index_t begin = results.begin[axis], last = results.end[axis] - 1, s = stride_[axis];
    if (to_input_) {
      box.begin[axis] = ceil_div(begin + pad_[axis] - (span_[axis] - 1), s);
      box.end[axis] = std::max(box.begin[axis], floor_div(last + pad_[axis], s)) + 1;
    } else {
      box.begin[axis] = begin * s - pad_[axis];
      box.end[axis] = last * s - pad_[axis] + span_[axis];
    }
  }
  return box;
}

Extent3 DirectMap::first(const DirectPhase& phase, const Extent3& begin) const noexcept {
  Extent3 first = begin;
  for (int axis = 0; axis < 3 && to_input_; ++axis) {
    const index_t s = stride_[axis];
    first[axis] += (phase.residue[axis] - (begin[axis] + pad_[axis]) % s + s) % s;
  }
  return first;
}

Extent3 DirectMap::count(const Extent3& first, const Extent3& end) const noexcept {
  Extent3 count;
  for (int axis = 0; axis < 3; ++axis) {
    count[axis] = first[axis] < end[axis] ? (end[axis] - first[axis] - 1) / target_step_[axis] + 1 : 0;
  }
  return count;
}

index_t DirectMap::base(index_t result, int axis) const noexcept {
  return to_input_ ? (result + pad_[axis]) / stride_[axis] : result * stride_[axis] - pad_[axis];
}

Extent3 DirectMap::base(const Extent3& result) const noexcept {
  return {base(result.z, 0), base(result.y, 1), base(result.x, 2)};
}

bool DirectMap::pads_one_result() const noexcept {
  return std::all_of(phases_.begin(), phases_.end(), [&](const DirectPhase& phase) {
    const Extent3 begin = first(phase, {0, 0, 0}), all = count(begin, domain_);
    // The taps of the first row are those of all rows.
    const auto row = phase.taps.begin(), end = row + (all.x > 0 && !phase.taps.empty() ? phase.count.x : 0);
    return std::all_of(row, end, [&](const DirectTap& tap) {
      const index_t at = base(begin.x, 2) + tap.offset.x, step = source_step_.x;
      const index_t before = at < 0 ? ceil_div(-at, step) : 0;
      const index_t inside = at < source_.x ? ceil_div(source_.x - at, step) : 0;
      return before + std::max<index_t>(0, all.x - inside) <= 1;
    });
  });
}

index_t DirectMap::equal_run(const DirectPhase& phase, int axis, index_t result, index_t count) const noexcept {
  const index_t begin = base(result, axis), step = source_step_[axis], extent = source_[axis];
  // Taps with the same place along the axis have the same offset along it.
  const index_t apart = axis == 0 ? phase.count.y * phase.count.x : axis == 1 ? phase.count.x : 1;
  for (index_t i = 0; i < phase.count[axis] && !phase.taps.empty(); ++i) {
    const index_t at = begin + phase.taps[static_cast<std::size_t>(i * apart)].offset[axis];
    // The taps that reach the source stay the same for all results before the next tap enters or leaves the source.
    if (at < 0)
      count = std::min(count, ceil_div(-at, step));
    else if (at < extent)
      count = std::min(count, ceil_div(extent - at, step));
  }
  return count;
}

Box RegionGrid::box(index_t region, const Extent3& domain) const noexcept {
  return box_of(region, extent, count, domain);
}

Box clipped_taps(const ConvProblem& p, const Box& box, const Extent3& tap) noexcept {
  Box inside = box;
  for (int axis = 0; axis < 3; ++axis) {
    const index_t shift = p.pad_before[axis] - tap[axis] * p.dilation[axis], s = p.stride[axis];
    inside.begin[axis] = std::max(box.begin[axis], ceil_div(shift, s));
    inside.end[axis] = std::min(box.end[axis], floor_div(p.input[axis] - 1 + shift, s) + 1);
  }
  return inside;
}

Box input_window(const ConvProblem& p, const Box& box) noexcept {
  Box input_window;
  const Extent3 span = p.span();
  for (int axis = 0; axis < 3; ++axis) {
    const index_t first = box.begin[axis] * p.stride[axis] - p.pad_before[axis];
    const index_t end = (box.end[axis] - 1) * p.stride[axis] - p.pad_before[axis] + span[axis];
    input_window.begin[axis] = std::clamp<index_t>(first, 0, p.input[axis]);
    input_window.end[axis] = std::clamp<index_t>(end, input_window.begin[axis], p.input[axis]);
  }
  return input_window;
}

}  // namespace convolume::conv
