// The header of NIfTI-1 and NIfTI-2 files. Private to this room.
#pragma once

#include <string>
#include <string_view>

#include "nets/io/volume_info.hpp"

namespace convolume::nets::io::detail {

struct NiftiHeader {
  int version = 1;
  bool swapped = false;  ///< the file has the other byte order
  bool pair = false;     ///< voxels lie in a file of their own (.img)
  index_t channels = 1;
  Extent3 extent{};
  VoxelType stored = VoxelType::uint8;
  std::uint64_t offset = 0;  ///< of the voxels in their file
  double slope = 1, intercept = 0;
  Geometry geometry{};

  bool scaled() const noexcept { return slope != 1 || intercept != 0; }
};

/// Returns whether a decoded file begins with a NIfTI header, as far as the first bytes tell.
bool has_nifti_header(std::string_view head);

/// Reads the header from the first bytes of a decoded file. Throws FormatError that names the field of the header.
NiftiHeader parse_nifti_header(const std::string& file, std::string_view head);

/// Returns the bytes before the voxels of a single file. It is NIfTI-1 unless an axis is too long for it.
std::string nifti_header_bytes(const NiftiHeader& header);

/// Returns the geometry of a volume that has a spacing only.
Geometry geometry_of(const Spacing& spacing);
/// Returns the spacing that a geometry holds.
Spacing spacing_of(const Geometry& geometry);

}  // namespace convolume::nets::io::detail
