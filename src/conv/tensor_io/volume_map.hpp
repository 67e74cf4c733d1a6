// Copies the voxels of a tensor into the volume that is transformed, and back.
#pragma once

#include <memory_resource>

#include "conv/spectra/frequency_product.hpp"
#include "convolume/conv.hpp"
#include "ops/activation.hpp"
#include "ops/reduce.hpp"

namespace convolume::conv {

/// A padded volume of real numbers: planes of rows, possibly with gaps between planes.
struct VolumeGeometry {
  Extent3 extent{};          ///< voxels of the volume; z is the number of planes, even if Z is not transformed
  index_t plane_stride = 0;  ///< elements between planes; rows are extent.x elements apart
};

/// One side of a convolution, independent of the direction. In the frequency domain a convolution relates a
/// high-resolution side (x of a plain problem, y of a transposed one), to a low-resolution side.
/// Voxel i of a side lies at offset + step * i in the padded volume.
struct Side {
  index_t channels = 0;
  Extent3 extent{};
  Extent3 offset{0, 0, 0};
  Extent3 step{1, 1, 1};
  /// Returns the number of planes of the volume up to and including the last voxel of this side.
  index_t last_plane() const noexcept { return offset.z + (extent.z - 1) * step.z + 1; }
};

/// The prologue: dz = dy times the activation's gradient at y, and the sum over dz.
template <class T>
struct VolumePrologue {
  const Activation* activation = nullptr;
  const T* y = nullptr;  ///< a feature map of y with strides `y_stride`
  std::array<index_t, 5> y_stride{};
  double* sum = nullptr;
};

/// The epilogue: y = activation(scale * v + bias), or this is added to y.
template <class T>
struct VolumeEpilogue {
  T scale = 1;
  T bias = 0;
  Activation activation{};
  bool add = false;
};

/// Copies feature maps into volumes and back, with the kernels of the SIMD target that was current when the object was
/// made. Thread-safe.
template <class T>
class VolumeMaps {
 public:
  /// Copies a feature map into the first `planes` planes of a volume and sets every other voxel of these planes to
  /// zero. `row` is scratch of extent.x elements. It is used only if the step along X is not 1.
  void load(const Side& side, const VolumeGeometry& volume, const T* map, const std::array<index_t, 5>& stride,
            index_t planes, const VolumePrologue<T>& prologue, T* row, T* target) const;

  /// Copies a feature map out of a volume and applies the epilogue.
  void store(const Side& side, const VolumeGeometry& volume, const T* source, const VolumeEpilogue<T>& epilogue, T* row,
             T* map, const std::array<index_t, 5>& stride) const;

 private:
  ops::ActivationKernels<T> activations_ = ops::activation_kernels<T>();
  ops::ReduceKernels<T> sums_ = ops::reduce_kernels<T>();
  SpectrumKernels<T> spectra_ = spectrum_kernels<T>();
};

}  // namespace convolume::conv
