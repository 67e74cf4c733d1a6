// Where the voxels of a tensor lie in the volume that is transformed, and the way in and out.
#pragma once

#include <memory_resource>

#include "convolume/conv.hpp"

namespace convolume::conv {

/// A padded volume of real numbers: `planes` planes of rows, possibly with gaps between planes.
struct VolumeGeometry {
  Extent3 extent{};          ///< voxels of the volume that is transformed; z counts planes also where Z is not
  index_t plane_stride = 0;  ///< elements between planes; rows lie extent.x apart
};

/// One side of a convolution without direction. In the frequency domain a convolution relates a *fine* tensor (x of a
/// plain problem, y of a transposed one) to a *coarse* one: fine = offset + step * own position.
struct Side {
  index_t channels = 0;
  Extent3 extent{};
  Extent3 offset{0, 0, 0};
  Extent3 step{1, 1, 1};
  /// Planes of the volume from 0 up to its last voxel.
  index_t last_plane() const noexcept { return offset.z + (extent.z - 1) * step.z + 1; }
};

/// What happens to voxels on the way in: dz = dy times the activation's gradient at y, and the sum over dz.
template <class T>
struct LoadEnd {
  const Activation* activation = nullptr;
  const T* y = nullptr;  ///< feature map of y, strided as `y_stride`
  std::array<index_t, 5> y_stride{};
  double* sum = nullptr;
};

/// What happens on the way out: y = activation(scale * v + bias), or added to y.
template <class T>
struct StoreEnd {
  T scale = 1;
  T bias = 0;
  Activation activation{};
  bool add = false;
};

/// Puts a feature map into the first `planes` planes of a volume and clears every other voxel of them. `row` is scratch
/// of extent.x elements, used where an end or a step needs it.
template <class T>
void load_map(const Side& side, const VolumeGeometry& volume, const T* map, const std::array<index_t, 5>& stride,
              index_t planes, const LoadEnd<T>& end, T* row, T* target);

/// Takes a feature map out of a volume.
template <class T>
void store_map(const Side& side, const VolumeGeometry& volume, const T* source, const StoreEnd<T>& end, T* row, T* map,
               const std::array<index_t, 5>& stride);

}  // namespace convolume::conv
