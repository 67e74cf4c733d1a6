// Writes the files of a Zarr v2 array. Private to this room.
#pragma once

#include <filesystem>
#include <span>

#include "nets/io/chunk_assembler.hpp"
#include "nets/io/zarr_metadata.hpp"

namespace convolume::nets::io::detail {

/// Returns the array that is written for a volume: chunks of 64 voxels along each axis, and Zstandard within Blosc,
/// unless the options say otherwise.
ZarrArray zarr_array(const SinkOptions& options);

/// Returns the path of an array within its Zarr, without needless parts; empty if the Zarr is the array.
std::filesystem::path inside_zarr(const VolumePath& where);
/// Returns the folder that is replaced: the array in a Zarr that exists, otherwise the whole Zarr.
std::filesystem::path zarr_target(const VolumePath& where);

/// Marks the folders from `root` to the parent of `folder` as groups.
void write_groups(const std::filesystem::path& root, const std::filesystem::path& folder);
/// Makes the folders from `root` to the parent of `folder`, and marks them as groups.
void make_groups(const std::filesystem::path& root, const std::filesystem::path& folder);
/// Writes .zarray and .zattrs.
void write_metadata(const ZarrArray& array, const std::filesystem::path& folder);
/// Writes a chunk to a new file. A chunk at the end of an axis is filled up with zeros. Several threads may call it at
/// once. Throws IoError, as all functions here do.
void write_chunk(const ZarrArray& array, const std::filesystem::path& file, const ChunkPlace& place,
                 std::span<const std::byte> voxels);

/// Makes all files of the folder's file system durable.
void sync_folder(const std::filesystem::path& folder);
/// Puts a folder in the place of what has the name `target`, which is removed. If the two cannot be exchanged at once,
/// an old array has another name for a moment.
void replace_folder(const std::filesystem::path& folder, const std::filesystem::path& target);

}  // namespace convolume::nets::io::detail
