#include "nets/infer/inference_windows.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "nets/infer/part_sink.hpp"
#include "nets/infer/predictor.hpp"

namespace convolume::nets {
namespace {

/// The parts of an axis: each has whole chunks.
struct Parts {
  std::vector<io::VoxelBox> boxes;  // along one axis; the other ones are those of the region
  index_t output = 0, input = 0;    // voxels of the largest part, and of what its patches read
  index_t patches = 0;              // of all parts together
};

Parts cut(const InferenceNeeds& needs, int axis, index_t chunk, index_t count) {
  const index_t extent = needs.region.extent[axis], chunks = (extent + chunk - 1) / chunk;
  Parts parts;
  for (index_t i = 0; i < count; ++i) {
    io::VoxelBox box{{0, 0, 0}, needs.region.extent};
    box.begin[axis] = chunks * i / count * chunk;
    box.extent[axis] = std::min(extent, chunks * (i + 1) / count * chunk) - box.begin[axis];
    const auto input = Blender::input_box(needs.grid, needs.region, needs.volume.extent, box);
    const auto [first, end] = needs.grid.axis(axis).touching(box.begin[axis], box.end()[axis]);
    parts.output = std::max(parts.output, box.extent[axis]);
    parts.input = std::max(parts.input, input.extent[axis]);
    parts.patches += end - first;
    parts.boxes.push_back(box);
  }
  return parts;
}

std::size_t bytes_of(const InferenceNeeds& needs, index_t planes, const Parts& y, const Parts& x) {
  return needs.fixed + VolumeWindow::bytes(needs.volume, {planes, y.input, x.input}, needs.threads) +
         Blender::sum_bytes(needs.grid, needs.channels, y.output, x.output) +
         PartSink::bytes(needs.stored, y.output, x.output, needs.threads);
}

/// Returns the numbers of parts that are tried: all small ones, then ever fewer.
std::vector<index_t> counts_up_to(index_t most) {
  std::vector<index_t> counts;
  for (index_t n = 1; n < most; n += std::max<index_t>(1, n / 8)) counts.push_back(n);
  counts.push_back(most);
  return counts;
}

}  // namespace

InferenceWindows choose_windows(const InferenceNeeds& needs, std::size_t memory) {
  const Extent3 chunk = io::partial_chunk(needs.stored).second;
  const io::VoxelBox all{{0, 0, 0}, needs.region.extent};
  const index_t planes = Blender::input_box(needs.grid, needs.region, needs.volume.extent, all).extent.z;
  std::vector<Parts> along[2];
  for (int axis = 1; axis < 3; ++axis) {
    for (const index_t n : counts_up_to((needs.region.extent[axis] + chunk[axis] - 1) / chunk[axis])) {
      along[axis - 1].push_back(cut(needs, axis, chunk[axis], n));
    }
  }
  InferenceWindows best;
  const Parts *best_y = nullptr, *best_x = nullptr;
  std::size_t least = bytes_of(needs, planes, along[0].back(), along[1].back());
  for (const Parts& x : along[1]) {
    for (const Parts& y : along[0]) {
      const std::size_t bytes = bytes_of(needs, planes, y, x);
      least = std::min(least, bytes);
      const index_t patches = y.patches * x.patches * needs.grid.axis(0).count();
      if (bytes > memory || (best_y != nullptr && patches >= best.patches)) continue;
      best_y = &y;
      best_x = &x;
      best.bytes = bytes;
      best.patches = patches;
    }
  }
  if (best_y == nullptr) {
    constexpr std::size_t mebibyte = std::size_t{1} << 20;
    throw InvalidArgument(
        fmt::format("--memory {}M: this net needs at least {}M with a patch of {}; give more, or use a smaller patch",
                    memory / mebibyte, (least + mebibyte - 1) / mebibyte, to_string(needs.grid.patch)));
  }
  for (const io::VoxelBox& y : best_y->boxes) {
    for (const io::VoxelBox& x : best_x->boxes) best.columns.push_back(io::intersection(y, x));
  }
  return best;
}

}  // namespace convolume::nets
