// Reads and writes whole volumes in memory. See volume_source.hpp and volume_sink.hpp for boxes.
//
// Every function here may be called from several threads at once.
#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <memory_resource>
#include <string>

#include "convolume/tensor.hpp"
#include "nets/io/volume_info.hpp"

namespace convolume::nets::io {

struct ReadOptions {
  std::size_t max_bytes = std::numeric_limits<std::size_t>::max();  ///< largest result to allocate, in bytes of float
  bool require_finite = true;  ///< reject NaN and infinity, also if the conversion to float makes them
};

/// Returns what a volume file says, without reading its voxels. It checks every page of a TIFF. Throws IoError
/// (missing, unreadable) and FormatError (anything else that read_volume rejects).
VolumeInfo inspect_volume(const VolumePath& path);
inline VolumeInfo inspect_volume(const std::filesystem::path& file) { return inspect_volume(VolumePath{file, ""}); }

/// Returns all voxels, converted to float, as {1, C, Z, Y, X} in `memory`.
///
/// Declared sizes are compared with the size of the file and with `max_bytes` before anything is allocated. Integers
/// beyond 2^24 and doubles are rounded to the nearest float. Throws what open_volume() throws, and FormatError if the
/// volume is too large or holds a value that is not finite (its voxel is named).
Tensor<float> read_volume(const VolumePath& path, const ReadOptions& options = {},
                          std::pmr::memory_resource* memory = std::pmr::get_default_resource());
inline Tensor<float> read_volume(const std::filesystem::path& file, const ReadOptions& options = {},
                                 std::pmr::memory_resource* memory = std::pmr::get_default_resource()) {
  return read_volume(VolumePath{file, ""}, options, memory);
}

/// Type of the written voxels. `uint8` maps 0..1 to 0..255 with rounding; values outside are clamped.
enum class ElementType { float32, uint8 };

struct WriteOptions {
  ElementType element_type = ElementType::float32;
};

/// Writes {1, C, Z, Y, X} in the format that the name selects. Equal voxels give equal bytes. The file is written
/// beside its target, synced and renamed, so after a failure the old file is untouched and no other file is left.
/// Throws InvalidArgument (empty view, N > 1, a name or a shape that no format takes), NumericalError (NaN to uint8),
/// IoError (names file and reason).
void write_volume(const VolumePath& path, const View<const float>& volume, const WriteOptions& options = {});
inline void write_volume(const std::filesystem::path& file, const View<const float>& volume,
                         const WriteOptions& options = {}) {
  write_volume(VolumePath{file, ""}, volume, options);
}

/// Returns names and versions of the libraries that read and write volumes, one per line.
std::string format_versions();

}  // namespace convolume::nets::io
