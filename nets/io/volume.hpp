// Reads and writes volumes on disk: TIFF stacks and HDF5 datasets of single-channel voxels.
//
// The contents of a file decide its format. The extension decides only for writing, and if the contents are not
// conclusive.
//
// TIFF: one page is one Z slice. Supported are classic TIFF and BigTIFF, both byte orders, strips and tiles, and
// lossless compression (none, LZW, PackBits, deflate, LZMA, Zstandard); unsigned and signed integers of 8, 16 and 32
// bits, and floats of 32 and 64 bits. MinIsWhite, colour and palette pages are rejected, because the user should choose
// how they become gray. The orientation tag is ignored: rows are read in the order in which they are stored.
//
// HDF5: a 3-D dataset [z][y][x] of integers or floats. Virtual datasets, and datasets whose data lie in other files,
// are rejected.
//
// Every function here may be called from several threads at once; calls into HDF5 are serialised by one lock.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory_resource>
#include <string>
#include <string_view>
#include <utility>

#include "convolume/tensor.hpp"

namespace convolume::nets::io {

/// Size and type that a file declares. The extent is in voxels; `element_type` is the stored type: "uint8", "int16",
/// "float32", ...
struct VolumeInfo {
  Extent3 extent;
  std::string element_type;
};

struct ReadOptions {
  std::string dataset = {};                      ///< path inside an HDF5 file; empty: the only 3-D dataset in it
  std::size_t max_bytes = std::size_t{8} << 30;  ///< largest result to allocate, in bytes of float
  bool require_finite = true;                    ///< reject NaN and infinity, also if the conversion to float makes
                                                 ///< them
};

/// Type of the stored voxels. `uint8` maps 0..1 to 0..255 with rounding; values outside are clamped.
enum class ElementType { float32, uint8 };

struct WriteOptions {
  std::string dataset = "/volume";  ///< path inside an HDF5 file; groups are made as needed
  ElementType element_type = ElementType::float32;
};

/// Returns extent and type of a volume without reading its voxels. It checks every page of a TIFF. `dataset` is as in
/// ReadOptions. Throws IoError (missing, unreadable, no regular file) and FormatError (anything else that read_volume
/// rejects).
VolumeInfo inspect_volume(const std::filesystem::path& file, const std::string& dataset = "");

/// Returns the voxels, converted to float and not scaled, as {1, 1, Z, Y, X} in `memory`.
///
/// Declared sizes are compared with the size of the file and with `max_bytes` before anything is allocated. Integers
/// beyond 2^24 and doubles are rounded to the nearest float. Throws IoError if the file is missing, unreadable or no
/// regular file. Throws FormatError, naming file, page or dataset, value and remedy, if the file is truncated, not a
/// gray volume, empty, too large, or of a type not listed above, or if it holds a value that is not finite (its voxel
/// is named).
Tensor<float> read_volume(const std::filesystem::path& file, const ReadOptions& options = {},
                          std::pmr::memory_resource* memory = std::pmr::get_default_resource());

/// Writes {1, C, Z, Y, X} to a TIFF (.tif, .tiff; C = 1) or HDF5 file (.h5, .hdf5), compressed with deflate.
///
/// HDF5 stores [z][y][x], or [c][z][y][x] if C > 1, with checksums; an old file is replaced, not extended. TIFF stores
/// one page per slice, and becomes a BigTIFF beyond 3.5 GB of voxels. Equal voxels give equal bytes. The encoded file
/// is held in memory until it is complete. It is then written beside the target, synced and renamed, so after a failure
/// the old file is untouched and no other file is left. Throws InvalidArgument (empty view, N > 1, unknown extension,
/// TIFF with C > 1, bad dataset name), NumericalError (NaN to uint8), IoError (names file and reason).
void write_volume(const std::filesystem::path& file, const View<const float>& volume, const WriteOptions& options = {});

/// Throws what write_volume would throw for the name, the number of channels, or a folder that is missing or not
/// writable. Call it before the voxels are computed.
void check_writable(const std::filesystem::path& file, index_t channels);

/// Splits "file.h5:/raw" into {"file.h5", "/raw"}. Only a colon after an HDF5 extension separates; otherwise the
/// dataset is "".
std::pair<std::filesystem::path, std::string> split_volume_path(std::string_view text);

/// Returns names and versions of the libraries that read and write volumes, one per line.
std::string format_versions();

}  // namespace convolume::nets::io
