#include "nets/io/chunk_assembler.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "nets/io/volume_source.hpp"

namespace convolume::nets::io {
namespace {

index_t parts_of(index_t whole, index_t part) { return (whole - 1) / part + 1; }

/// Returns the voxels of a chunk if they lie without gaps within an array of a box, otherwise nullptr.
const std::byte* without_gaps(const ChunkPlace& place, ChannelRange channels, const VoxelBox& box,
                              const std::byte* voxels, std::size_t voxel_bytes) {
  const Extent3 &e = place.box.extent, &all = box.extent;
  const bool inside = intersection(place.box, box) == place.box && place.channels.begin >= channels.begin &&
                      place.channels.begin + place.channels.count <= channels.begin + channels.count;
  const bool rows = e.x == all.x && (e.y == all.y || e.z == 1);
  const bool one = e.x == all.x && e.y == all.y && e.z == all.z;
  if (!inside || !rows || (place.channels.count > 1 && !one)) return nullptr;
  const Extent3 at = place.box.begin - box.begin;
  const index_t first = (((place.channels.begin - channels.begin) * all.z + at.z) * all.y + at.y) * all.x + at.x;
  return voxels + static_cast<std::size_t>(first) * voxel_bytes;
}

}  // namespace

ChunkGrid::ChunkGrid(index_t channels, const Extent3& extent, index_t chunk_channels, const Extent3& chunk)
    : channels_(channels),
      chunk_channels_(chunk_channels),
      extent_(extent),
      chunk_(chunk),
      counts_{parts_of(channels, chunk_channels), parts_of(extent.z, chunk.z), parts_of(extent.y, chunk.y),
              parts_of(extent.x, chunk.x)} {}

ChunkPlace ChunkGrid::place(index_t c, const Extent3& index) const noexcept {
  ChunkPlace place{.number = ((c * counts_[1] + index.z) * counts_[2] + index.y) * counts_[3] + index.x,
                   .c = c,
                   .index = index,
                   .channels = {c * chunk_channels_, 0},
                   .box = {.begin = index * chunk_, .extent = {}}};
  place.channels.count = std::min(chunk_channels_, channels_ - place.channels.begin);
  for (int axis = 0; axis < 3; ++axis) {
    place.box.extent[axis] = std::min(chunk_[axis], extent_[axis] - place.box.begin[axis]);
  }
  return place;
}

void ChunkGrid::for_each(ChannelRange channels, const VoxelBox& box,
                         const std::function<void(const ChunkPlace&)>& body) const {
  const Extent3 end = box.end();
  const auto last = [&](int axis) { return (end[axis] - 1) / chunk_[axis]; };
  for (index_t c = channels.begin / chunk_channels_; c <= (channels.begin + channels.count - 1) / chunk_channels_;
       ++c) {
    for (index_t z = box.begin.z / chunk_.z; z <= last(0); ++z) {
      for (index_t y = box.begin.y / chunk_.y; y <= last(1); ++y) {
        for (index_t x = box.begin.x / chunk_.x; x <= last(2); ++x) body(place(c, {z, y, x}));
      }
    }
  }
}

ChunkAssembler::ChunkAssembler(const SinkOptions& options, index_t chunk_channels, const Extent3& chunk, bool in_order,
                               std::filesystem::path folder, Put put)
    : voxel_bytes_(size_of(options.type)),
      limit_(options.memory),
      slot_bytes_(static_cast<std::uint64_t>(chunk_channels * chunk.volume()) * voxel_bytes_),
      grid_(options.channels, options.extent, chunk_channels, chunk),
      in_order_(in_order),
      folder_(std::move(folder)),
      put_(std::move(put)) {}

std::size_t ChunkAssembler::bytes_of(const ChunkPlace& place) const {
  return static_cast<std::size_t>(place.channels.count * place.box.extent.volume()) * voxel_bytes_;
}

void ChunkAssembler::write(ChannelRange channels, const VoxelBox& box, const std::byte* voxels) {
  grid_.for_each(channels, box, [&](const ChunkPlace& place) {
    const std::byte* whole = without_gaps(place, channels, box, voxels, voxel_bytes_);
    if (whole != nullptr && (!in_order_ || place.number == next_)) {
      put(place, {whole, bytes_of(place)});
      next_ = place.number + 1;
      return put_next();
    }
    Pending& chunk = pending(place);
    fill(chunk, place, channels, box, voxels);
    if (chunk.missing == 0) complete(place);
  });
}

void ChunkAssembler::put(const ChunkPlace& place, std::span<const std::byte> voxels) {
  put_(place, voxels);
  const auto number = static_cast<std::size_t>(place.number);
  if (number >= is_put_.size()) is_put_.resize(number + 1);
  if (!is_put_[number]) ++put_count_;
  is_put_[number] = true;
}

void ChunkAssembler::check_complete(const VolumePath& path) const {
  if (put_count_ == grid_.count() && pending_.empty()) return;
  throw InvalidArgument(fmt::format("{}: {} of {} chunks were written, and {} are not complete; write each voxel once",
                                    path.text(), put_count_, grid_.count(), pending_.size()));
}

ChunkAssembler::Pending& ChunkAssembler::pending(const ChunkPlace& place) {
  const auto [at, added] = pending_.try_emplace(place.number);
  Pending& chunk = at->second.second;
  if (!added) return chunk;
  at->second.first = place;
  chunk.missing = place.channels.count * place.box.extent.volume();
  const std::size_t bytes = bytes_of(place);
  if (held_ + bytes <= limit_) {
    chunk.memory.resize(bytes);
    held_ += bytes;
    return chunk;
  }
  if (!file_) file_.emplace(ReadableFile::temporary(folder_));
  if (free_slots_.empty()) free_slots_.push_back(slot_bytes_ * slots_++);
  chunk.spilled = free_slots_.back();
  free_slots_.pop_back();
  return chunk;
}

void ChunkAssembler::fill(Pending& chunk, const ChunkPlace& place, ChannelRange channels, const VoxelBox& box,
                          const std::byte* voxels) {
  const VoxelBox both = intersection(place.box, box);
  const index_t first = std::max(channels.begin, place.channels.begin);
  const index_t end = std::min(channels.begin + channels.count, place.channels.begin + place.channels.count);
  const std::size_t from_channel = static_cast<std::size_t>(box.extent.volume()) * voxel_bytes_;
  const std::size_t to_channel = static_cast<std::size_t>(place.box.extent.volume()) * voxel_bytes_;
  for (index_t c = first; c < end; ++c) {
    const std::byte* from = voxels + static_cast<std::size_t>(c - channels.begin) * from_channel;
    const std::size_t to = static_cast<std::size_t>(c - place.channels.begin) * to_channel;
    if (!chunk.spilled) {
      copy_overlap(from, box, chunk.memory.data() + to, place.box, voxel_bytes_);
      continue;
    }
    for (index_t z = both.begin.z; z < both.end().z; ++z) {
      for (index_t y = both.begin.y; y < both.end().y; ++y) {
        const auto at = [&](const VoxelBox& array) {
          return static_cast<std::size_t>(((z - array.begin.z) * array.extent.y + y - array.begin.y) * array.extent.x +
                                          both.begin.x - array.begin.x) *
                 voxel_bytes_;
        };
        file_->write_at(*chunk.spilled + to + at(place.box),
                        {from + at(box), static_cast<std::size_t>(both.extent.x) * voxel_bytes_});
      }
    }
  }
  chunk.missing -= (end - first) * both.extent.volume();
}

void ChunkAssembler::complete(const ChunkPlace& place) {
  if (in_order_ && place.number != next_) return;
  if (!in_order_) next_ = place.number;
  put_next();
}

void ChunkAssembler::put_next() {
  for (auto at = pending_.find(next_); at != pending_.end() && at->second.second.missing == 0;
       at = pending_.find(next_)) {
    auto& [place, chunk] = at->second;
    if (chunk.spilled) {
      chunk.memory.resize(bytes_of(place));
      file_->read_at(*chunk.spilled, chunk.memory);
      free_slots_.push_back(*chunk.spilled);
    } else {
      held_ -= chunk.memory.size();
    }
    put(place, chunk.memory);
    pending_.erase(at);
    ++next_;
  }
}

}  // namespace convolume::nets::io
