// The orientation of volumes: which way their axes point in the patient or the specimen, and how to turn them.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "nets/io/volume_source.hpp"

namespace convolume::nets::io {

/// A permutation and mirroring of the axes z, y, x. Axis a of the turned volume is axis from[a] of the file, read
/// backwards if mirrored[a]. No voxel is interpolated.
struct AxisMap {
  std::array<int, 3> from{0, 1, 2};
  std::array<bool, 3> mirrored{};
  friend bool operator==(const AxisMap&, const AxisMap&) = default;

  bool identity() const { return *this == AxisMap{}; }
  /// Returns the map that turns a turned volume back.
  AxisMap inverse() const;
  /// Returns the extent that a volume has when it is turned.
  Extent3 turned(const Extent3& extent) const;
  /// Returns where a box of a volume of this extent lies when the volume is turned.
  VoxelBox turned(const VoxelBox& box, const Extent3& extent) const;
  /// Returns the values of the axes z, y, x in the order of the turned volume.
  std::array<double, 3> turned(const std::array<double, 3>& zyx) const;
};

/// Throws InvalidArgument unless a text is an orientation: three letters, one of R and L, one of A and P, one of S and
/// I.
void check_orientation(const std::string& text);

/// Returns where the axes i, j, k of NIfTI, which are our x, y, z, point: "RAS" means to the right, to the front
/// (anterior) and up (superior). An axis that lies between two directions has the nearer one. Returns an empty text if
/// the header has neither sform nor qform, or if its map is no map of space.
std::string orientation_of(const Geometry& geometry);

/// Returns how a volume is turned so that its axes point this way. Throws InvalidArgument that names the file if it
/// says no orientation.
AxisMap turn_to(const std::string& orientation, const VolumeSource& volume);

/// Reads a volume turned. Spacing and geometry are those of the turned volume.
std::unique_ptr<VolumeSource> turned(std::shared_ptr<const VolumeSource> source, const AxisMap& map);

}  // namespace convolume::nets::io
