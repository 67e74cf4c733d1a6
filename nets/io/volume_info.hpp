// What a volume file says about its voxels.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convolume/tensor.hpp"
#include "nets/io/voxel_type.hpp"

namespace convolume::nets::io {

/// The distance of neighbouring voxels along Z, Y and X.
struct Spacing {
  std::array<double, 3> zyx{1, 1, 1};
  std::string unit;  ///< "um", "mm", ...; the file's own word if it is unknown; empty if the file does not say
  friend bool operator==(const Spacing&, const Spacing&) = default;
};

/// Returns how many micrometres a unit of length has, which has a name of OME-Zarr ("micrometer"), of ImageJ ("micron")
/// or a symbol ("um"). Returns nothing for any other text, for example "pixel".
std::optional<double> micrometres_per(std::string_view unit);

/// Returns the symbol of a unit of length: "um" for "micrometer". Returns any other text as it is.
std::string unit_symbol(std::string_view unit);

/// Returns the spacing in micrometres, or nothing if its unit is no known unit of length.
std::optional<std::array<double, 3>> spacing_in_micrometres(const Spacing& spacing);

/// Where a NIfTI volume lies in space. The fields are those of the NIfTI header, and keep its axes: i is our X, k is
/// our Z.
struct Geometry {
  std::array<double, 8> pixdim{};  ///< pixdim[0] is qfac, pixdim[1..3] are the distances along i, j, k
  int xyzt_units = 0, qform_code = 0, sform_code = 0;
  std::array<double, 3> quatern{};  ///< b, c, d
  std::array<double, 3> offset{};   ///< of the qform: x, y, z
  std::array<double, 12> srow{};    ///< the rows of the sform
  friend bool operator==(const Geometry&, const Geometry&) = default;

  /// Returns the affine map from (i, j, k) to space, row by row: the sform if it has a code, else the qform if it has
  /// one, else the distances alone.
  std::array<double, 12> affine() const;
  /// Returns the lengths of the steps of that map along k, j and i, which are our Z, Y and X.
  std::array<double, 3> steps() const;
};

/// Returns by how many voxels two geometries place the corners of a volume differently.
double distance_in_voxels(const Geometry& a, const Geometry& b, const Extent3& extent);

/// Voxels [begin, begin + extent).
struct VoxelBox {
  Extent3 begin{0, 0, 0}, extent{};
  Extent3 end() const noexcept { return begin + extent; }
  friend bool operator==(const VoxelBox&, const VoxelBox&) = default;
};

/// Channels [begin, begin + count).
struct ChannelRange {
  index_t begin = 0, count = 1;
};

/// How a header scales stored numbers: a voxel is stored * slope + intercept.
struct ValueScale {
  VoxelType stored = VoxelType::uint8;
  double slope = 1, intercept = 0;
};

/// Returns where a scaled voxel comes from, for messages: "stored as uint8, scaled by 0.01569 in its header: 64 is
/// 1.003922". Returns an empty text if voxels are not scaled.
std::string scaling_text(const std::optional<ValueScale>& scale, double voxel);

/// Returns the command that stores the voxels of such a file as whole numbers, for messages.
std::string whole_numbers_command(const std::string& file, const ValueScale& scale);

/// What a message says behind the place of a voxel of a turned volume.
inline constexpr const char* turned_text = " (in the axes to which it was turned)";

/// What is known of a volume without reading its voxels.
struct VolumeInfo {
  std::string format;    ///< "TIFF", "HDF5", ...
  index_t channels = 1;  ///< of all samples
  index_t samples = 1;   ///< more than 1 only if OpenOptions::samples allows it
  Extent3 extent;
  VoxelType type = VoxelType::float32;  ///< type of the voxels that are read
  std::string element_type;             ///< stored type: "uint8", "float16", "int16, scaled by 2 + 10", ...
  std::optional<Spacing> spacing{};
  std::optional<Geometry> geometry{};
  std::optional<ValueScale> scale{};
  /// What a user should know: metadata that is ignored on purpose, or that contradicts itself. One sentence each.
  std::vector<std::string> notes{};
  bool turned = false;  ///< axes are not those of the file (io::turned)
  /// What is read or decoded as a whole: a chunk, a page, a strip, a row.
  index_t chunk_channels = 1;
  Extent3 chunk{};
  bool planes_of_chunks = false;   ///< planes of a chunk can be read without its other planes
  bool decoded_once = false;       ///< the first read decodes all of it, and then any box can be read alone
  std::uint64_t stored_bytes = 0;  ///< of the voxels in the file; 0 for Zarr, see VolumeSource::stored_bytes()
  std::string details{};           ///< compression and the like, for `convolume info`

  std::uint64_t bytes_per_voxel() const noexcept { return size_of(type); }
};

/// Calls tell("NAME: NOTE") for each note, unless `tell` is empty.
void tell_notes(const std::string& name, const VolumeInfo& info, const std::function<void(const std::string&)>& tell);

/// Names a file, and a data set within it: "a.tif", "a.h5:/raw", "a.zarr:/s0", "slices/*.png".
struct VolumePath {
  std::filesystem::path file;
  std::string inside;  ///< empty if the text names none

  std::string text() const { return inside.empty() ? file.string() : file.string() + ":" + inside; }
};

/// Splits "file.h5:/raw" into {"file.h5", "/raw"}. Only a colon after the extension of HDF5 or Zarr separates.
VolumePath split_volume_path(std::string_view text);

}  // namespace convolume::nets::io
