// The metadata of a Zarr v2 array. Private to this room.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nets/io/volume_sink.hpp"

namespace convolume::nets::io::detail {

/// How a chunk is compressed.
struct ZarrCodec {
  enum class Kind { raw, zlib, gzip, zstd, blosc } kind = Kind::raw;
  std::string blosc_name;  ///< "lz4", "zstd", ...
  int level = 1, shuffle = 1;
};

struct ZarrArray {
  index_t channels = 1, chunk_channels = 1;
  Extent3 extent{}, chunk{};
  std::string axes = "zyx";  ///< of the array, in the order of `shape`: z, y, x, maybe c, maybe one t
  VoxelType type = VoxelType::uint8;
  bool half = false;     ///< stored as floats of 16 bits, and read as float32
  bool boolean = false;  ///< stored as 0 and 1, and read as uint8
  bool big_endian = false, column_major = false;
  char separator = '.';
  ZarrCodec codec{};
  std::vector<std::byte> fill{};  ///< one voxel; zeros if the array says null
  std::optional<Spacing> spacing{};
  std::vector<std::pair<std::string, std::string>> notes{};  ///< written only; see SinkOptions

  std::vector<std::string> remarks{};  ///< what a user should know of the metadata

  std::size_t stored_voxel_bytes() const noexcept { return half ? 2 : size_of(type); }
  std::size_t chunk_bytes() const noexcept {
    return static_cast<std::size_t>(chunk_channels * chunk.z * chunk.y * chunk.x) * stored_voxel_bytes();
  }
  /// Returns whether the voxels of a chunk are stored in the order [c][z][y][x].
  bool in_order() const;
  /// Returns by how many voxels neighbours along c, z, y and x lie apart in a stored chunk.
  std::array<index_t, 4> strides() const;
  /// Returns the name of a chunk's file below the array: "0.1.2" or "0/1/2".
  std::string key(index_t c, const Extent3& index) const;
};

/// Reads the metadata of the array `inside` a Zarr folder. If it is empty, and the folder is a group, the first level
/// of an OME-Zarr is taken, or the only array. Sets `folder` to the folder of the array. Throws FormatError that names
/// file and key, IoError.
ZarrArray read_zarr(const VolumePath& path, std::filesystem::path& folder);

/// Returns the texts of .zarray and .zattrs. Equal arrays give equal texts.
std::string zarray_text(const ZarrArray& array);
std::string zattrs_text(const ZarrArray& array);

/// Decodes a chunk into exactly `voxels.size()` bytes. Throws FormatError that names `file`. Several threads may call
/// it at once.
void decode_chunk(const ZarrCodec& codec, const std::string& file, std::span<const std::byte> stored,
                  std::span<std::byte> voxels);
/// Encodes a chunk. Equal bytes give equal results. Throws IoError.
std::vector<std::byte> encode_chunk(const ZarrCodec& codec, const std::string& file, std::span<const std::byte> voxels,
                                    std::size_t voxel_bytes);
/// Returns the most bytes that a stored chunk can be decoded to.
std::size_t most_decoded_bytes(const ZarrCodec& codec, std::span<const std::byte> stored);
/// Returns the most bytes that a chunk of `bytes` bytes may take when it is encoded.
std::size_t most_encoded_bytes(std::size_t bytes) noexcept;

}  // namespace convolume::nets::io::detail
