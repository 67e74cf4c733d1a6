// A Zarr array that is filled chunk by chunk, and whose chunks survive a kill, a full disk and a power cut.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nets/io/chunk_assembler.hpp"

namespace convolume::nets::io {

/// A folder that holds the finished chunks of a volume, and a manifest: a text that says what the volume will be.
///
/// A chunk is staged first. publish() makes all staged chunks durable, and only then gives them their names. So a chunk
/// that exists is complete. One process at a time can have the folder open.
class PartialZarr {
 public:
  /// Makes the folder. Throws IoError if it exists or cannot be made, and InvalidArgument for an unsuitable volume.
  static std::unique_ptr<PartialZarr> create(const std::filesystem::path& folder, const SinkOptions& options,
                                             const std::string& manifest);
  /// Opens the folder of an interrupted process. Throws IoError if there is none, or if a process has it open.
  static std::unique_ptr<PartialZarr> open(const std::filesystem::path& folder);
  /// Closes the folder, which stays.
  ~PartialZarr();
  PartialZarr(const PartialZarr&) = delete;
  PartialZarr& operator=(const PartialZarr&) = delete;

  const std::filesystem::path& folder() const noexcept;
  const std::string& manifest() const noexcept;
  const ChunkGrid& grid() const noexcept;
  const Extent3& chunk() const noexcept;
  const Extent3& extent() const noexcept;
  index_t finished() const noexcept;  ///< number of chunks that are complete
  bool has(const ChunkPlace& place) const;
  /// Returns whether all chunks with voxels of the box, in all channels, are complete.
  bool has(const VoxelBox& box) const;

  /// Encodes and writes a chunk [c][z][y][x]. Several threads may call it at once. Throws IoError.
  void stage(const ChunkPlace& place, std::span<const std::byte> voxels);
  /// Publishes all staged chunks. No thread may call stage() meanwhile. Throws IoError.
  void publish();

  /// Gives the folder its final place, and removes the manifest. What had the name before is replaced. Throws IoError.
  void move_to(const VolumePath& target);
  /// Removes the folder and all chunks.
  void remove();

 private:
  struct State;
  explicit PartialZarr(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Returns the bytes of an array's largest chunk for such a volume, and the extent of its chunks.
std::pair<std::size_t, Extent3> partial_chunk(const SinkOptions& options);

}  // namespace convolume::nets::io
