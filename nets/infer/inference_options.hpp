// What the options of an inference say about its region, its patches and its files.
#pragma once

#include <filesystem>
#include <optional>

#include "convolume/inference.hpp"
#include "nets/infer/stored_voxels.hpp"
#include "nets/io/volume_info.hpp"
#include "nets/spec/net_spec.hpp"

namespace convolume::nets {

/// Checks what the options say about patches. The overlap is checked against the longest axis of the patch: one number
/// may stand for all axes, so a thin patch is no error as long as some axis can hold the overlap. Throws
/// InvalidArgument.
void check_patch_options(const InferOptions& options, const NetSpec& spec);

/// Returns the region of the volume that is segmented, in the axes of the file. Throws InvalidArgument.
io::VoxelBox region_of(const InferOptions& options, const Extent3& extent);

/// Returns the folder in which finished chunks are kept.
std::filesystem::path part_of(const io::VolumePath& target);

/// Returns the folder of a file; "." if the path names none.
std::filesystem::path folder_of(const std::filesystem::path& file);

/// Returns what is written. Throws InvalidArgument for options that exclude each other.
Stored stored_of(const InferOptions& options, const NetSpec& spec);

}  // namespace convolume::nets
