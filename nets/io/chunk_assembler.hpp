// Gathers boxes of voxels into whole chunks, for formats that store whole chunks, pages or slices.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "core/files.hpp"
#include "nets/io/volume_sink.hpp"

namespace convolume::nets::io {

/// A chunk: its index along each axis, and the voxels of the volume that lie in it.
struct ChunkPlace {
  index_t number = 0;  ///< in the order [c][z][y][x]
  index_t c = 0;
  Extent3 index{0, 0, 0};
  ChannelRange channels;
  VoxelBox box;
};

/// The grid of chunks of a volume.
class ChunkGrid {
 public:
  ChunkGrid() = default;
  ChunkGrid(index_t channels, const Extent3& extent, index_t chunk_channels, const Extent3& chunk);

  index_t count() const noexcept { return counts_[0] * counts_[1] * counts_[2] * counts_[3]; }
  ChunkPlace place(index_t c, const Extent3& index) const noexcept;
  /// Calls body(place) for each chunk that has voxels in the box, in the order of their numbers.
  void for_each(ChannelRange channels, const VoxelBox& box, const std::function<void(const ChunkPlace&)>& body) const;

 private:
  index_t channels_ = 1, chunk_channels_ = 1;
  Extent3 extent_{}, chunk_{};
  std::array<index_t, 4> counts_{};
};

class ChunkAssembler {
 public:
  /// Receives the voxels [c][z][y][x] of a chunk.
  using Put = std::function<void(const ChunkPlace&, std::span<const std::byte>)>;

  /// `in_order`: chunks are put in the order of their numbers; those that are complete too early wait. Beyond
  /// options.memory bytes, chunks that are not complete lie in a nameless temporary file in `folder`.
  ChunkAssembler(const SinkOptions& options, index_t chunk_channels, const Extent3& chunk, bool in_order,
                 std::filesystem::path folder, Put put);

  void write(ChannelRange channels, const VoxelBox& box, const std::byte* voxels);

  /// Throws InvalidArgument that names `path`, unless every chunk has been put and none waits for voxels.
  void check_complete(const VolumePath& path) const;

 private:
  struct Pending {
    std::vector<std::byte> memory;           // empty if the chunk lies in the temporary file
    std::optional<std::uint64_t> spilled{};  // offset in the temporary file
    index_t missing = 0;                     // voxels of all channels
  };

  Pending& pending(const ChunkPlace& place);
  void fill(Pending& chunk, const ChunkPlace& place, ChannelRange channels, const VoxelBox& box,
            const std::byte* voxels);
  void complete(const ChunkPlace& place);
  void put_next();
  void put(const ChunkPlace& place, std::span<const std::byte> voxels);
  std::size_t bytes_of(const ChunkPlace& place) const;

  std::size_t voxel_bytes_, limit_, held_ = 0;
  std::uint64_t slot_bytes_ = 0, slots_ = 0;
  std::vector<std::uint64_t> free_slots_;
  ChunkGrid grid_;
  bool in_order_;
  index_t next_ = 0, put_count_ = 0;
  std::filesystem::path folder_;
  Put put_;
  std::vector<bool> is_put_;  // by the chunk's number
  std::map<index_t, std::pair<ChunkPlace, Pending>> pending_;
  std::optional<ReadableFile> file_;
};

}  // namespace convolume::nets::io
