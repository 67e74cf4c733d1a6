// Volumes in memory. While one is registered it has a path, "array:1", that open_volume() knows.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "nets/io/volume_source.hpp"

namespace convolume::nets::io {

/// Voxels [c][z][y][x] in memory. Their owner keeps them, and does not change them while they are read.
struct ArrayVoxels {
  const std::byte* voxels = nullptr;
  VoxelType type = VoxelType::float32;
  index_t channels = 1;
  Extent3 extent{};
  std::array<std::ptrdiff_t, 4> stride{};  ///< bytes between neighbours along C, Z, Y, X; may be negative or 0
  std::optional<Spacing> spacing{};
};

/// Returns the strides of voxels without gaps.
std::array<std::ptrdiff_t, 4> dense_strides(VoxelType type, const Extent3& extent);

/// Returns a source of these voxels. `path` is its name.
std::unique_ptr<VolumeSource> array_source(const ArrayVoxels& voxels, VolumePath path);

/// Returns the path of voxels from now on. Thread-safe, as are the functions below.
std::string register_array(const ArrayVoxels& voxels);
void forget_array(const std::string& path) noexcept;
/// Returns whether a text is the path of registered voxels.
bool is_array_path(std::string_view path);
/// Returns the registered voxels. Throws IoError if there are none.
ArrayVoxels array_at(const VolumePath& path);

}  // namespace convolume::nets::io
