#include "nets/infer/patch_grid.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/checked.hpp"

namespace convolume::nets {
namespace {

struct AxisNeeds {
  index_t region, patch, output, offset, alignment, padded_before, padded_behind, overlap;
  Blend blend;
};

/// Returns the weight of voxel `i` of `n` by its position in the patch alone.
double shape_of_blend(Blend blend, index_t i, index_t n, double rise, index_t from_inner_face) {
  switch (blend) {
    case Blend::ramp:
      return std::min(1.0, static_cast<double>(from_inner_face + 1) / rise);
    case Blend::gaussian: {
      // The standard deviation is an eighth of the patch, and the least weight a thousandth of the largest.
      const double distance = (static_cast<double>(i) - static_cast<double>(n - 1) / 2) / (static_cast<double>(n) / 8);
      return std::max(1e-3, std::exp(-distance * distance / 2));
    }
    case Blend::uniform:
      break;
  }
  return 1;
}

/// Returns the weights of a patch's output voxels, before they are divided by their sum over all patches. A weight is
/// zero within the untrusted margin of an inner face.
std::vector<double> raw_weights(const AxisNeeds& a, bool first, bool last) {
  index_t before = a.padded_before, behind = a.padded_behind;
  if (before + behind >= a.overlap && before + behind > 0) {
    before = (a.overlap > 0 ? a.overlap - 1 : 0) * before / (before + behind);
    behind = std::max<index_t>(0, a.overlap - 1 - before);
  }
  const auto rise = static_cast<double>(std::max<index_t>(0, a.overlap - before - behind) + 1);
  std::vector<double> weights(static_cast<std::size_t>(a.output), 0.0);
  for (index_t i = 0; i < a.output; ++i) {
    const index_t from_begin = first ? a.output : i - before, from_end = last ? a.output : a.output - 1 - i - behind;
    const index_t nearest = std::min(from_begin, from_end);
    if (nearest < 0) continue;
    weights[static_cast<std::size_t>(i)] = shape_of_blend(a.blend, i, a.output, rise, nearest);
  }
  return weights;
}

/// Returns the weights of all patches along an axis. They sum up to 1 at each voxel.
std::vector<std::vector<float>> weights_of(const AxisNeeds& a, const std::vector<index_t>& starts) {
  std::vector<double> sum(static_cast<std::size_t>(starts.back() + a.output), 0.0);
  std::vector<std::vector<double>> raw;
  for (std::size_t p = 0; p < starts.size(); ++p) {
    raw.push_back(raw_weights(a, p == 0, p + 1 == starts.size()));
    for (index_t i = 0; i < a.output; ++i) {
      sum[static_cast<std::size_t>(starts[p] + i)] += raw.back()[static_cast<std::size_t>(i)];
    }
  }
  std::vector<std::vector<float>> weights;
  for (std::size_t p = 0; p < starts.size(); ++p) {
    std::vector<float>& of_patch = weights.emplace_back();
    for (index_t i = 0; i < a.output; ++i) {
      of_patch.push_back(
          static_cast<float>(raw[p][static_cast<std::size_t>(i)] / sum[static_cast<std::size_t>(starts[p] + i)]));
    }
  }
  return weights;
}

AxisPatches place_patches(const AxisNeeds& a) {
  AxisPatches axis;
  axis.patch = a.patch;
  axis.output = a.output;
  axis.offset = a.offset;
  // Every patch starts on the pooling grid of the first patch, so the last one may extend beyond the region.
  const index_t extent = a.output + round_up(std::max<index_t>(0, a.region - a.output), a.alignment);
  const index_t step = std::max(a.alignment, (a.output - a.overlap) / a.alignment * a.alignment);
  for (index_t start = 0; start < extent - a.output; start += step) axis.starts.push_back(start);
  axis.starts.push_back(extent - a.output);
  axis.weights = weights_of(a, axis.starts);
  AxisNeeds mirrored = a;
  std::swap(mirrored.padded_before, mirrored.padded_behind);
  axis.mirrored_weights = weights_of(mirrored, axis.starts);
  return axis;
}

/// Returns the patch that is asked for, on the pooling grid if the net keeps the extent of what it reads.
Extent3 patch_on_grid(const NetSpec& spec, const PatchOptions& options, const Extent3& alignment) {
  Extent3 patch = options.patch.value_or(spec.patch), whole;
  for (int axis = 0; axis < 3; ++axis) whole[axis] = round_up(patch[axis], alignment[axis]);
  const Extent3 kept = infer_shapes(spec, whole).output().extent;
  for (int axis = 0; axis < 3; ++axis) {
    if (kept[axis] != whole[axis] || patch[axis] == whole[axis]) continue;
    if (options.patch) {
      throw ConfigError(
          fmt::format("inference patch {} along {} is not a multiple of the net's pooling grid ({}); use {}",
                      patch[axis], "zyx"[axis], alignment[axis], whole[axis]));
    }
    patch[axis] = whole[axis];
  }
  return patch;
}

/// Returns the output voxels of a patch along an axis; 0 if the net cannot read it.
index_t output_along(const NetSpec& spec, const Extent3& patch, int axis) {
  try {
    return infer_shapes(spec, patch).output().extent[axis];
  } catch (const ConfigError&) {
    return 0;
  }
}

}  // namespace

std::pair<index_t, index_t> AxisPatches::touching(index_t begin, index_t behind) const {
  const auto first =
      std::partition_point(starts.begin(), starts.end(), [&](index_t start) { return start + output <= begin; });
  const auto end = std::partition_point(first, starts.end(), [&](index_t start) { return start < behind; });
  return {first - starts.begin(), end - starts.begin()};
}

PatchGrid make_patch_grid(const NetSpec& spec, const Extent3& region, const PatchOptions& options) {
  const Extent3 alignment = infer_shapes(spec, options.patch.value_or(spec.patch)).alignment();
  Extent3 patch = patch_on_grid(spec, options, alignment);
  NetShapes shapes = infer_shapes(spec, patch);
  const Extent3 whole = shapes.output().extent;
  for (int axis = 0; axis < 3; ++axis) {
    // A patch need not be larger than the region.
    const index_t most = patch[axis], wanted = std::min(region[axis], whole[axis]);
    patch[axis] = std::min(most, round_up(region[axis], alignment[axis]) + most - whole[axis]);
    // Smaller patches may have a larger margin, because pooling drops voxels that fill no window.
    while (patch[axis] < most && output_along(spec, patch, axis) < wanted) {
      patch[axis] = std::min(most, patch[axis] + alignment[axis]);
    }
  }
  shapes = infer_shapes(spec, patch);
  PatchGrid grid;
  grid.region = region;
  grid.patch = patch;
  const Extent3 out = shapes.output().extent, before = shapes.reach_before(), behind = shapes.reach_behind();
  for (int axis = 0; axis < 3; ++axis) {
    const index_t most = out[axis] / 2;
    const index_t padded_before = shapes.output().padded_before[axis],
                  padded_behind = shapes.output().padded_behind[axis];
    index_t overlap = padded_before + padded_behind > 0 ? std::min(before[axis] + behind[axis] + 1, most) : 0;
    if (options.overlap) overlap = (*options.overlap)[axis];
    // The starts of neighbouring patches differ by at least one period of the pooling grid.
    overlap = std::clamp<index_t>(overlap, 0, std::max<index_t>(0, out[axis] - alignment[axis]));
    if (out[axis] < std::min(alignment[axis], region[axis])) {
      throw ConfigError(
          fmt::format("inference patch {} along {}: {} voxels come out, less than the net's pooling grid "
                      "({}); use a larger one",
                      patch[axis], "zyx"[axis], out[axis], alignment[axis]));
    }
    grid.overlap[axis] = overlap;
    grid.axes[static_cast<std::size_t>(axis)] =
        place_patches({region[axis], patch[axis], out[axis], shapes.offset()[axis], alignment[axis], padded_before,
                       padded_behind, overlap, options.blend});
  }
  return grid;
}

}  // namespace convolume::nets
