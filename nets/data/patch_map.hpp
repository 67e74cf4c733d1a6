// Where in a volume the voxels of a patch come from.
#pragma once

#include <array>
#include <vector>

#include "nets/data/patch_draw.hpp"
#include "ops/sampling.hpp"

namespace convolume::nets {

/// The one map of a patch: flips, quarter turns, rotation, scale, elastic deformation and shifts of sections. For voxel
/// p of the patch, with q(p) the voxel after flips and quarter turns, c the centre of the patch and d its random
/// displacement, the place in the volume is origin + c + M (q - c) + d + shift of the section. If the net gets voxels
/// of another spacing, this is a place in its grid, and `Resampling` says which place in the volume it is.
class PatchMap {
 public:
  PatchMap() = default;
  /// `spacing` is that of the volume. `cubic`: images are interpolated cubically, wherever a place lies between voxels.
  PatchMap(const PatchDraw& draw, const AugmentSpec& augment, const Extent3& patch, const VoxelLengths& spacing,
           const std::optional<Resampling>& resampling = {}, bool cubic = false);

  /// Returns the largest extent that box() can have for any draw.
  static Extent3 largest_box(const AugmentSpec& augment, const Extent3& patch, const VoxelLengths& spacing,
                             const std::optional<Resampling>& resampling = {}, bool cubic = false);

  /// The box of the volume that holds every voxel that is read. It may lie outside the volume in part.
  const io::VoxelBox& box() const { return box_; }
  /// Returns whether all places are voxels.
  bool exact() const { return exact_; }
  /// How images are read. If one axis is more than three times as coarse as the others, it takes the nearest voxel.
  ops::Interpolation interpolation() const { return interpolation_; }

  /// Writes the places, relative to the begin of box(), of `n` voxels of the patch from (z, y, x) on along X.
  void places(index_t z, index_t y, index_t x, index_t n, float* to_z, float* to_y, float* to_x) const;
  /// For an exact map: returns the first voxel of such a row in the box, and the distance of neighbours in it.
  std::pair<index_t, index_t> row(index_t z, index_t y, index_t x) const;

 private:
  void make_controls(const PatchDraw& draw, const AugmentSpec& augment, const VoxelLengths& spacing);
  void add_displacements(index_t z, index_t y, index_t x, index_t n, float* const to[3]) const;
  std::array<index_t, 3> shift_of(index_t z) const;

  Extent3 patch_{0, 0, 0};
  std::array<double, 3> first_{};                 // place of voxel 0, relative to the box
  std::array<std::array<double, 3>, 3> steps_{};  // steps_[axis][b]: change along `axis` of the place per step along b
  bool exact_ = true;
  ops::Interpolation interpolation_ = ops::Interpolation::linear;
  int coarse_axis_ = -1;  // of a map that interpolates: its places are rounded
  index_t misaligned_ = -1;
  bool slips_ = false;
  std::array<index_t, 2> shift_{0, 0};
  std::array<double, 3> zoom_{1, 1, 1};  // voxels of the volume per voxel of the patch
  // Elastic deformation: cubic B-splines over a grid of displacements, [axis][z][y][x].
  Extent3 grid_{0, 0, 0}, controls_extent_{0, 0, 0};
  std::vector<float> controls_;
  std::vector<std::array<float, 4>> weights_x_;  // of the voxels between two control points along X
  io::VoxelBox box_{};
};

}  // namespace convolume::nets
