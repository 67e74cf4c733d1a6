#include "nets/files/array_voxels.hpp"

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::nets {

io::ArrayVoxels voxels_of(const ArrayView& array) {
  const Extent3& e = array.extent;
  if (array.voxels == nullptr) throw InvalidArgument("ArrayView.voxels: null; pass the address of the first voxel");
  if (array.channels < 1 || e.z < 1 || e.y < 1 || e.x < 1) {
    throw InvalidArgument(fmt::format("ArrayView: {} channels of {} voxels; every axis needs at least one",
                                      array.channels, to_string(e)));
  }
  io::ArrayVoxels voxels{.voxels = static_cast<const std::byte*>(array.voxels),
                         .type = io::parse_voxel_type(array.type),
                         .channels = array.channels,
                         .extent = e};
  voxels.stride = array.stride.value_or(io::dense_strides(voxels.type, e));
  if (!array.spacing) return voxels;
  for (const double length : *array.spacing) {
    if (length > 0 && length <= 1e9) continue;
    throw InvalidArgument(fmt::format("ArrayView.spacing: a voxel has the length {}; it must be positive", length));
  }
  voxels.spacing = io::Spacing{.zyx = *array.spacing, .unit = {}};
  return voxels;
}

}  // namespace convolume::nets
