// Volumes read at another spacing.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "convolume/tensor.hpp"
#include "nets/io/volume_source.hpp"

namespace convolume::nets {

/// Lengths of a voxel along Z, Y, X, in the unit of the file (io::Spacing has the unit).
using VoxelLengths = std::array<double, 3>;

/// Returns the axis that is more than three times as coarse as both others, or -1. Between its slices, nothing is
/// interpolated.
int coarse_axis(const VoxelLengths& spacing);

/// A map from the voxels of one grid to places in another grid. Both cover the same space, so voxel t of one has its
/// centre at place (t + 0.5) zoom - 0.5 of the other. `from` and `to` are boxes of these grids.
struct Resampling {
  io::VoxelBox from{}, to{};
  std::array<double, 3> zoom{1, 1, 1};  ///< voxels of `from` per voxel of `to`
  int nearest_axis = -1;                ///< this axis takes the nearest voxel; -1: none
  bool nearest = false;                 ///< all axes do
  bool cubic = false;                   ///< the others are interpolated cubically instead of linearly

  /// Returns the place of voxel t of `to`. Both count from the begin of their boxes.
  double place(int axis, index_t t) const {
    const double voxel = static_cast<double>(to.begin[axis] + t) + 0.5;
    return voxel * zoom[static_cast<std::size_t>(axis)] - 0.5 - static_cast<double>(from.begin[axis]);
  }
  /// Returns the map from the voxels of `from` to places in `to`. It interpolates linearly, because what comes back are
  /// probabilities, which a cubic interpolation takes below 0 and above 1.
  Resampling inverse() const;
  /// Returns the voxels of `from` that a box of `to` is made of. Both count from the begin of their boxes.
  io::VoxelBox needed(const io::VoxelBox& box) const;
  /// Returns the map that makes a box of `to` from the voxels that it needs.
  Resampling cut(const io::VoxelBox& box) const;
};

/// Returns how a volume is brought to the spacing `target`; nothing if it has this spacing. The grid has at least one
/// voxel per axis. Throws InvalidArgument if voxels would become more than 16 times as long or as short, which means
/// that units differ.
std::optional<Resampling> resampling_of(const Extent3& extent, const VoxelLengths& spacing, const VoxelLengths& target);

/// Computes a box of one channel by interpolation: linear, or by cubic convolution with a = -0.5 (Catmull-Rom). `from`
/// holds the voxels of `from_box`, which contains how.needed(box). Places outside the volume take its nearest voxel,
/// and so do the voxels outside that a cubic interpolation reads.
void resample(const Resampling& how, const float* from, const io::VoxelBox& from_box, float* to,
              const io::VoxelBox& box);

/// Returns a tensor {1, C, how.to.extent} from one of {1, C, how.from.extent}.
Tensor<float> resample(const Resampling& how, const View<const float>& from, std::pmr::memory_resource* memory);

/// Reads a volume at other places. The voxels have the type of the volume, or float32 if `as_floats`; integers are
/// rounded. A cubic interpolation needs `as_floats`, because its results may lie outside the range of the voxels.
/// `source` must live longer if it is only referred to. A read holds about 32 MiB at once, or the planes of the source
/// that one slice needs if these are larger: two, or four for a cubic interpolation.
std::unique_ptr<io::VolumeSource> resampled(std::shared_ptr<const io::VolumeSource> source, const Resampling& how,
                                            bool as_floats);

}  // namespace convolume::nets
