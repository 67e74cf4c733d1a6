// Transforms of convolution kernels: volumes in which only a few voxels are not zero.
#pragma once

#include <array>
#include <memory_resource>
#include <vector>

#include "convolume/fft.hpp"
#include "fft/linear_combination.hpp"

namespace convolume::fft {

/// Computes a pruned transform: the spectrum of a volume that is zero except for `support` voxels at multiples of
/// `step`. Also transforms a spectrum back to these voxels only. Each axis is transformed by its definition. With k
/// voxels along the outermost axis in memory, this takes k complex multiply-adds per frequency. For k below about 20,
/// this is less work than any full transform, and all of it runs along contiguous memory. Immutable and thread-safe.
template <class T>
class PrunedTransform {
 public:
  /// Spectra have the layout of `volume`, an r2c plan of one volume. Throws InvalidArgument if the support does not lie
  /// inside the volume.
  PrunedTransform(const Plan& volume, const Extent3& support, const Extent3& step);

  /// Transforms `voxels`, which is dense, support.z x support.y x support.x. Writes the whole spectrum; its padding
  /// becomes zero.
  void forward(const T* voxels, T* spectrum, T* scratch) const;
  /// Computes the unnormalised c2r transform at the support. The spectrum must belong to a real volume; its padding is
  /// not used.
  void inverse(const T* spectrum, T* voxels, T* scratch) const;

  std::size_t scratch_bytes() const noexcept;
  double flops() const noexcept;  ///< of one direction

 private:
  /// An axis in the order of memory: outer, middle, inner.
  struct Axis {
    index_t support = 1;      // voxels
    index_t frequencies = 1;  // padding included
    index_t voxel_stride = 1;
    // exp(-2 pi i * f * j * step / n) as [j][f] and [f][j], zero if f is padding. The factors of the inverse are
    // conjugated. On the halved axis they are multiplied by the number of times (1 or 2) that the whole spectrum holds
    // the frequency.
    std::vector<T> by_voxel, by_frequency, inverse_by_voxel;
  };

  index_t plane() const { return axes_[1].frequencies * axes_[2].frequencies; }

  std::array<Axis, 3> axes_;
  CombinationKernels<T> kernels_ = combination_kernels<T>();
};

}  // namespace convolume::fft
