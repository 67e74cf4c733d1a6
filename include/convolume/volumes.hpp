// Copies and describes volumes in files.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "convolume/tensor.hpp"

namespace convolume::nets {

/// Input and output of a conversion of volumes. Paths are "a.tif", "a.h5:/data", "a.nii.gz", "a.zarr:/s0",
/// "slices/*.png"; docs/formats.md lists the formats.
struct ConvertOptions {
  std::string input, output;
  std::optional<Extent3> begin{}, end{};  ///< the box [begin, end) along z, y, x; if absent, all voxels
  std::optional<index_t> channel{};       ///< if absent, all channels
  std::string orientation{};              ///< to which the volume is turned, for example "RAS"; if empty, it is not
  std::optional<double> nan{};            ///< what replaces NaN; if absent, NaN stays
  std::string type{};                     ///< "uint8", "float32", ...; if empty, that of the input
  std::optional<Extent3> chunk{};         ///< extent of the chunks of HDF5 and Zarr
  std::string codec{};                    ///< "raw", "deflate", "zstd" or "blosc"; if empty, the format's usual one
  bool take_over = false;                 ///< takes the output over from a process of another host that was killed
  std::function<void(double share)> on_progress{};
  std::function<void(const std::string& note)> on_note{};  ///< as in TrainOptions
  std::stop_token stop{};
};

/// Copies a volume, or a part of it, to a file of another format, box by box. Throws InvalidArgument, also if a voxel
/// does not fit the type (the voxel is named), IoError (also if another process writes this output, which the file
/// OUTPUT.owner names), FormatError. After a failure, and after a stop request, the output is as it was before. Returns
/// false if a stop request came before the end.
CONVOLUME_API bool convert_volume(const ConvertOptions& options);

/// Returns a text with format, channels, voxels, type, spacing, geometry and chunks of a volume.
CONVOLUME_API std::string describe_volume(const std::string& volume);

/// Voxels in memory: [c][z][y][x].
struct ArrayView {
  const void* voxels = nullptr;
  std::string type = "float32";  ///< as in ConvertOptions
  index_t channels = 1;
  Extent3 extent{};
  /// Bytes between neighbours along C, Z, Y, X; may be negative or 0. If absent, there are no gaps.
  std::optional<std::array<std::ptrdiff_t, 4>> stride{};
  std::optional<std::array<double, 3>> spacing{};  ///< lengths of a voxel along Z, Y, X
};

/// Gives voxels in memory a path. Every function that reads volumes, data sets included, accepts it in the place of a
/// file, and gives the same bits as for a file with the same voxels, type and spacing. The voxels are not copied: they
/// must stay, and must not change, while this object lives. Movable. Thread-safe.
class CONVOLUME_API ArrayVolume {
 public:
  /// Throws InvalidArgument for a null address, an unknown type, or an axis without voxels.
  explicit ArrayVolume(const ArrayView& array);
  ~ArrayVolume();
  ArrayVolume(ArrayVolume&& other) noexcept;
  ArrayVolume& operator=(ArrayVolume&& other) noexcept;

  const std::string& path() const noexcept { return path_; }  ///< "array:1", ...

 private:
  std::string path_;  // empty if moved from
};

/// A dataset of write_datasets().
struct NamedArray {
  std::string name;  ///< in the file, like "/volume"
  ArrayView array;
};

/// Writes arrays as the datasets of one HDF5 file. The file appears under its name when all are complete; after a
/// failure it is as it was before. Throws InvalidArgument for what convert_volume() refuses and for a name of a file
/// that does not end with .h5, and IoError, also if the file exists and holds other datasets too.
CONVOLUME_API void write_datasets(const std::filesystem::path& file, std::span<const NamedArray> arrays);

/// Throws what write_datasets() would throw before it writes.
CONVOLUME_API void check_datasets(const std::filesystem::path& file, std::span<const std::string> names);

enum class FileKind { net, checkpoint, volume };
/// Tells nets, checkpoints and volumes apart by their contents. What is neither of the first two is called a volume.
CONVOLUME_API FileKind kind_of_file(const std::string& file);

}  // namespace convolume::nets
