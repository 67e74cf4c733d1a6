// Copies and describes volumes in files.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "convolume/tensor.hpp"

namespace convolume::nets {

/// Input and output of a conversion of volumes. Paths are "a.tif", "a.h5:/data", "a.nii.gz", "a.zarr:/s0",
/// "slices/*.png"; docs/formats.md lists the formats.
struct ConvertOptions {
  std::string input, output;
  std::optional<Extent3> begin, end;  ///< the box [begin, end) along z, y, x; if absent, all voxels
  std::optional<index_t> channel;     ///< if absent, all channels
  std::string orientation{};          ///< to which the volume is turned, for example "RAS"; if empty, it is not
  std::optional<double> nan{};        ///< what replaces NaN; if absent, NaN stays
  std::string type;                   ///< "uint8", "float32", ...; if empty, that of the input
  std::optional<Extent3> chunk;       ///< extent of the chunks of HDF5 and Zarr
  std::string codec;                  ///< "raw", "deflate", "zstd" or "blosc"; if empty, the format's usual one
  bool take_over = false;             ///< takes the output over from a process of another host that was killed
  std::function<void(double share)> on_progress;
  std::function<void(const std::string& note)> on_note;  ///< as in TrainOptions
};

/// Copies a volume, or a part of it, to a file of another format, box by box. Throws InvalidArgument, also if a voxel
/// does not fit the type (the voxel is named), IoError (also if another process writes this output, which the file
/// OUTPUT.owner names), FormatError. After a failure the output is as it was before.
CONVOLUME_API void convert_volume(const ConvertOptions& options);

/// Returns a text with format, channels, voxels, type, spacing, geometry and chunks of a volume.
CONVOLUME_API std::string describe_volume(const std::string& volume);

enum class FileKind { net, checkpoint, volume };
/// Tells nets, checkpoints and volumes apart by their contents. What is neither of the first two is called a volume.
CONVOLUME_API FileKind kind_of_file(const std::string& file);

}  // namespace convolume::nets
