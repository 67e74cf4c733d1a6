#include "nets/infer/blender.hpp"

#include <algorithm>
#include <bit>

#include "nets/base/parallel.hpp"
#include "nets/data/mirror.hpp"
#include "ops/activation.hpp"

namespace convolume::nets {
namespace {

struct IndexRange {
  index_t begin, end;
};

/// Returns the voxels of [0, n) that the voxels [first, first + count) are, if voxels outside are mirrored.
IndexRange inside(index_t first, index_t count, index_t n) {
  if (first >= 0 && first + count <= n) return {first, first + count};
  IndexRange range{n, 0};
  for (index_t i = first; i < first + count; ++i) {
    const index_t at = mirrored_index(i, n);
    range = {std::min(range.begin, at), std::max(range.end, at + 1)};
  }
  return range;
}

bool is_mirrored(unsigned mirrored, int axis) { return (mirrored >> axis & 1U) != 0; }

/// Returns the first input voxel of a patch along an axis. The outputs of a mirrored patch cover the same voxels, so
/// its input begins elsewhere if the net does not read equally far to both sides.
index_t input_start(const AxisPatches& axis, index_t start, bool mirrored) {
  return mirrored ? start + axis.output - axis.patch + axis.offset : start - axis.offset;
}

/// Returns the voxels that patches of an axis read, mirrored or not.
IndexRange input_range(const AxisPatches& axis, index_t region_begin, index_t volume, index_t first, index_t end) {
  IndexRange all{volume, 0};
  for (index_t p = first; p < end; ++p) {
    for (const bool mirrored : {false, true}) {
      const index_t start = region_begin + input_start(axis, axis.starts[static_cast<std::size_t>(p)], mirrored);
      const IndexRange one = inside(start, axis.patch, volume);
      all = {std::min(all.begin, one.begin), std::max(all.end, one.end)};
    }
  }
  return all;
}

/// Returns the planes of which sums are kept.
index_t planes_of_sums(const PatchGrid& grid) { return std::min(grid.axis(0).output, grid.region.z); }

}  // namespace

Blender::Blender(const NetSpec& spec, index_t channels, const PatchGrid& grid, const io::VoxelBox& region,
                 std::vector<unsigned> mirrors, VolumeWindow& window, PredictionSink& sink,
                 std::pmr::memory_resource* memory)
    : spec_(spec),
      channels_(channels),
      grid_(grid),
      region_(region),
      mirrors_(std::move(mirrors)),
      window_(window),
      sink_(sink),
      memory_(memory),
      planes_(planes_of_sums(grid)) {}

std::size_t Blender::sum_bytes(const PatchGrid& grid, index_t channels, index_t rows, index_t columns) {
  return static_cast<std::size_t>(channels * planes_of_sums(grid) * rows * columns) * sizeof(float);
}

io::VoxelBox Blender::input_box(const PatchGrid& grid, const io::VoxelBox& region, const Extent3& volume,
                                const io::VoxelBox& column) {
  io::VoxelBox box;
  for (index_t layer = 0; layer < grid.axis(0).count(); ++layer) {
    const IndexRange planes = input_range(grid.axis(0), region.begin.z, volume.z, layer, layer + 1);
    box.extent.z = std::max(layer == 0 ? 0 : box.extent.z, planes.end - planes.begin);
  }
  for (int axis = 1; axis < 3; ++axis) {
    const auto [first, end] = grid.axis(axis).touching(column.begin[axis], column.end()[axis]);
    const IndexRange range = input_range(grid.axis(axis), region.begin[axis], volume[axis], first, end);
    box.begin[axis] = range.begin;
    box.extent[axis] = range.end - range.begin;
  }
  return box;
}

void Blender::begin(const io::VoxelBox& column) {
  column_ = column;
  finished_ = 0;
  window_.begin(input_box(grid_, region_, window_.shape().extent, column));
  const Shape5 shape{1, channels_, {planes_, column.extent.y, column.extent.x}};
  if (!sums_ || sums_.shape() != shape) {
    sums_ = Tensor<float>();  // first, so that both are never in memory
    sums_ = Tensor<float>(shape, memory_);
  }
  sums_.fill(0);
  sink_.begin(column);
}

std::vector<LayerPatch> Blender::missing(index_t layer) const {
  const auto start = [&](int axis, index_t p) { return grid_.axis(axis).starts[static_cast<std::size_t>(p)]; };
  const auto [y0, y1] = grid_.axis(1).touching(column_.begin.y, column_.end().y);
  const auto [x0, x1] = grid_.axis(2).touching(column_.begin.x, column_.end().x);
  const Extent3 output{grid_.axis(0).output, grid_.axis(1).output, grid_.axis(2).output};
  std::vector<LayerPatch> patches;
  for (index_t y = y0; y < y1; ++y) {
    for (index_t x = x0; x < x1; ++x) {
      const io::VoxelBox box{{start(0, layer), start(1, y), start(2, x)}, output};
      if (!sink_.needs(io::intersection(box, column_))) continue;
      for (const unsigned mirrored : mirrors_) patches.push_back({y, x, mirrored});
    }
  }
  return patches;
}

bool Blender::enter(index_t layer, std::vector<LayerPatch> patches, Scheduler& scheduler, const std::stop_token& stop) {
  layer_ = layer;
  patches_ = std::move(patches);
  if (patches_.empty()) return true;
  const IndexRange planes = input_range(grid_.axis(0), region_.begin.z, window_.shape().extent.z, layer, layer + 1);
  return window_.load(planes.begin, planes.end, scheduler, stop);
}

Extent3 Blender::start_of(const LayerPatch& patch) const {
  const auto start = [&](int axis, index_t p) { return grid_.axis(axis).starts[static_cast<std::size_t>(p)]; };
  return {start(0, layer_), start(1, patch.y), start(2, patch.x)};
}

Extent3 Blender::input_of(const LayerPatch& patch) const {
  Extent3 first = start_of(patch);
  for (int axis = 0; axis < 3; ++axis) {
    first[axis] = region_.begin[axis] + input_start(grid_.axis(axis), first[axis], is_mirrored(patch.mirrored, axis));
  }
  return first;
}

/// Voxels outside the volume are mirrored at its faces.
void Blender::load(std::size_t item, const View<float>& input, index_t first_row, index_t end_row) const {
  const LayerPatch& patch = patches_[item];
  const Extent3 &e = input.shape.extent, &volume = window_.shape().extent, first = input_of(patch);
  const IndexRange columns = inside(first.x, e.x, volume.x);
  const bool plain = first.x >= 0 && first.x + e.x <= volume.x;
  std::vector<float> row(static_cast<std::size_t>(plain ? 0 : columns.end - columns.begin));
  for (index_t c = 0; c < input.shape.c; ++c) {
    for (index_t r = first_row; r < end_row; ++r) {
      const index_t z = r / e.y, y = r % e.y;
      const index_t from_z = first.z + (is_mirrored(patch.mirrored, 0) ? e.z - 1 - z : z);
      const index_t from_y = first.y + (is_mirrored(patch.mirrored, 1) ? e.y - 1 - y : y);
      float* const to = &input(0, c, z, y, 0);
      window_.gather(c, mirrored_index(from_z, volume.z), mirrored_index(from_y, volume.y), columns.begin,
                     columns.end - columns.begin, plain ? to : row.data());
      if (!plain) {
        for (index_t x = 0; x < e.x; ++x) {
          to[x] = row[static_cast<std::size_t>(mirrored_index(first.x + x, volume.x) - columns.begin)];
        }
      }
      if (is_mirrored(patch.mirrored, 2)) std::reverse(to, to + e.x);
    }
  }
}

/// Computes the probabilities of a row of logits, all channels one after the other.
void Blender::probabilities(const View<const float>& logits, index_t z, index_t y, std::vector<float>& row) const {
  const index_t n = logits.shape.extent.x;
  const float* const from = &logits(0, 0, z, y, 0);
  if (spec_.softmax()) {
    ops::softmax(from, logits.stride[1], row.data(), n, n, channels_);
    return;
  }
  const Activation activation{spec_.sigmoid() ? Activation::Kind::sigmoid : Activation::Kind::none};
  for (index_t c = 0; c < channels_; ++c) {
    ops::activate(activation, from + c * logits.stride[1], row.data() + c * n, n);
  }
}

float* Blender::sums_at(index_t c, index_t z, index_t y) noexcept {
  const Extent3& e = sums_.shape().extent;
  return sums_.data() + ((c * e.z + z % planes_) * e.y + y - column_.begin.y) * e.x;
}

void Blender::add(std::size_t item, const View<const float>& logits, index_t first_row, index_t end_row) {
  const LayerPatch& patch = patches_[item];
  const Extent3 &e = logits.shape.extent, start = start_of(patch);
  const Extent3 numbers{layer_, patch.y, patch.x};
  const auto weights = [&](int axis) -> const std::vector<float>& {
    const AxisPatches& a = grid_.axis(axis);
    return (is_mirrored(patch.mirrored, axis) ? a.mirrored_weights
                                              : a.weights)[static_cast<std::size_t>(numbers[axis])];
  };
  const auto &wz = weights(0), &wy = weights(1), &wx = weights(2);
  const float share = 1.0f / static_cast<float>(mirrors_.size());
  const index_t x0 = std::max(start.x, column_.begin.x), x1 = std::min(start.x + e.x, column_.end().x);
  std::vector<float> row(static_cast<std::size_t>(channels_ * e.x));
  for (index_t r = first_row; r < end_row; ++r) {
    const index_t z = r / e.y, y = r % e.y;
    // The voxel of the patch, counted as in the volume.
    const index_t i = is_mirrored(patch.mirrored, 0) ? e.z - 1 - z : z;
    const index_t j = is_mirrored(patch.mirrored, 1) ? e.y - 1 - y : y;
    const index_t to_z = start.z + i, to_y = start.y + j;
    const float weight = wz[static_cast<std::size_t>(i)] * wy[static_cast<std::size_t>(j)] * share;
    if (weight == 0 || to_z < finished_ || to_z >= region_.extent.z || to_y < column_.begin.y ||
        to_y >= column_.end().y) {
      continue;
    }
    probabilities(logits, z, y, row);
    for (index_t c = 0; c < channels_; ++c) {
      float* const from = row.data() + c * e.x;
      if (is_mirrored(patch.mirrored, 2)) std::reverse(from, from + e.x);
      float* const to = sums_at(c, to_z, to_y) - column_.begin.x;
      for (index_t x = x0; x < x1; ++x) {
        to[x] += weight * wx[static_cast<std::size_t>(x - start.x)] * from[x - start.x];
      }
    }
  }
}

void Blender::leave(index_t layer, Scheduler& scheduler) {
  const AxisPatches& axis = grid_.axis(0);
  const bool last = layer + 1 == axis.count();
  const index_t end =
      last ? region_.extent.z : std::min(region_.extent.z, axis.starts[static_cast<std::size_t>(layer + 1)]);
  const Extent3& e = sums_.shape().extent;
  const index_t plane = e.y * e.x, stride = e.z * plane;
  const bool bounded = spec_.softmax() || spec_.sigmoid();
  while (finished_ < end) {
    const index_t begin = finished_, layer_end = sink_.layer_end(begin), stop = std::min(end, layer_end);
    const io::VoxelBox planes{{begin, column_.begin.y, column_.begin.x}, {stop - begin, e.y, e.x}};
    const bool needed = sink_.needs(planes);
    run_parallel(scheduler, "finish_planes", stop - begin, [&](index_t i) {
      const index_t z = begin + i;
      float* const values = sums_at(0, z, column_.begin.y);
      // Weights that sum up to 1 can give a little more than 1 by rounding.
      for (index_t c = 0; c < channels_ && bounded; ++c) {
        for (index_t v = 0; v < plane; ++v) values[c * stride + v] = std::min(values[c * stride + v], 1.0f);
      }
      if (needed) sink_.put(z, values, stride);
      for (index_t c = 0; c < channels_; ++c) std::fill_n(values + c * stride, plane, 0.0f);
    });
    finished_ = stop;
    if (stop == layer_end) sink_.finished(stop, scheduler);
  }
}

}  // namespace convolume::nets
