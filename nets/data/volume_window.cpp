#include "nets/data/volume_window.hpp"

#include <algorithm>

#include "core/checked.hpp"
#include "nets/base/parallel.hpp"

namespace convolume::nets {
namespace {

/// Returns the extent of the boxes that are read at once: whole chunks, a few MiB.
Extent3 piece_extent(const io::VolumeInfo& info, index_t columns) {
  constexpr index_t target = index_t{4} << 20;
  const index_t planes = std::max<index_t>(1, std::min(info.chunk.z, info.extent.z));
  const index_t row = planes * columns * info.channels * static_cast<index_t>(info.bytes_per_voxel());
  const index_t chunk_rows = std::clamp<index_t>(info.chunk.y, 1, info.extent.y);
  return {planes, std::max<index_t>(1, target / row / chunk_rows) * chunk_rows, columns};
}

/// Returns how many planes are kept so that whole chunks can be read although fewer planes are needed.
index_t stored_planes(const io::VolumeInfo& info, index_t needed) {
  // Chunks that are much deeper than patches are read in parts.
  const index_t chunk = std::clamp<index_t>(info.chunk.z, 1, std::max<index_t>(64, needed));
  return std::min(info.extent.z, needed + chunk - 1);
}

}  // namespace

VolumeWindow::VolumeWindow(const io::VolumeSource& source, std::shared_ptr<const VolumeScaling> scaling,
                           std::pmr::memory_resource* memory)
    : source_(&source),
      scaling_(std::move(scaling)),
      memory_(memory),
      shape_{1, source.info().channels, source.info().extent} {}

std::size_t VolumeWindow::bytes(const io::VolumeInfo& info, const Extent3& extent, int threads) {
  const auto voxel = static_cast<std::size_t>(info.channels) * info.bytes_per_voxel();
  const Extent3 piece = piece_extent(info, extent.x);
  const index_t stored = stored_planes(info, extent.z) * extent.y * extent.x;
  const index_t read = threads * piece.z * std::min(piece.y, extent.y) * piece.x;
  return static_cast<std::size_t>(stored + read) * voxel;
}

void VolumeWindow::begin(const io::VoxelBox& box) {
  if (whole_ != nullptr) return;
  box_ = box;
  box_.extent.z = stored_planes(source_->info(), box.extent.z);
  loaded_ = 0;
  planes_.set_first_plane(box_.begin.z);
  if (planes_ && planes_.shape().extent == box_.extent) return;
  planes_ = StoredVolume();  // first, so that both are never in memory
  planes_ = StoredVolume(shape_.c, box_.extent, source_->info().type, memory_);
  planes_.scale(scaling_, box_.begin.z);
}

bool VolumeWindow::load(index_t first, index_t end, Scheduler& scheduler, const std::stop_token& stop) {
  if (whole_ != nullptr) return true;
  const index_t available = box_.begin.z + loaded_;
  if (first >= box_.begin.z && end <= available) return true;
  const index_t kept = first >= box_.begin.z ? std::max<index_t>(0, available - first) : 0;
  if (kept > 0) planes_.move_planes(first - box_.begin.z, 0, kept);
  box_.begin.z = first;
  planes_.set_first_plane(first);
  loaded_ = kept;
  const io::VolumeInfo& info = source_->info();
  const Extent3 piece = piece_extent(info, box_.extent.x);
  const index_t begin = first + kept;
  const index_t target = std::min({round_up(end, piece.z), info.extent.z, first + box_.extent.z});
  const index_t read_end = std::max(end, target);
  // Pieces begin on the grid of chunks.
  std::vector<io::VoxelBox> pieces;
  for (index_t z = begin; z < read_end;) {
    const index_t z_end = std::min(read_end, (z / piece.z + 1) * piece.z);
    for (index_t y = box_.begin.y; y < box_.end().y;) {
      const index_t y_end = std::min(box_.end().y, (y / piece.y + 1) * piece.y);
      pieces.push_back({{z, y, box_.begin.x}, {z_end - z, y_end - y, box_.extent.x}});
      y = y_end;
    }
    z = z_end;
  }
  const bool complete = run_parallel(
      scheduler, "read_volume", static_cast<index_t>(pieces.size()),
      [&](index_t i) {
        const io::VoxelBox& box = pieces[static_cast<std::size_t>(i)];
        planes_.copy_overlap(StoredVolume::read(*source_, box, memory_), box, box_);
      },
      stop);
  if (complete) loaded_ = read_end - first;
  return complete;
}

void VolumeWindow::gather(index_t c, index_t z, index_t y, index_t x, index_t count, float* to) const {
  const StoredVolume& from = voxels();
  const Extent3& e = from.shape().extent;
  const Extent3 at = whole_ != nullptr ? Extent3{z, y, x} : Extent3{z, y, x} - box_.begin;
  from.gather(((c * e.z + at.z) * e.y + at.y) * e.x + at.x, count, to);
}

}  // namespace convolume::nets
