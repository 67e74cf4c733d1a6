// Transforms of convolution kernels: a few voxels in a corner of a large volume.
#pragma once

#include <array>
#include <memory_resource>
#include <vector>

#include "convolume/fft.hpp"

namespace convolume::fft {

/// The spectrum of a volume that is zero but for `support` voxels at multiples of `step`, and back: from a spectrum to
/// those voxels alone. Each axis is transformed by its definition; with k voxels along the outermost axis in memory
/// that is k complex multiply-adds per frequency, fewer than any full transform needs while k is below about 20, and
/// all of it runs along contiguous memory. Immutable and thread-safe.
template <class T>
class PrunedTransform {
 public:
  /// Spectra are laid out as those of `volume`, an r2c plan of one volume. Throws InvalidArgument where the support
  /// does not lie inside the volume.
  PrunedTransform(const Plan& volume, const Extent3& support, const Extent3& step);

  /// `voxels` is dense, support.z x support.y x support.x. Writes all of the spectrum, padding as zero.
  void forward(const T* voxels, T* spectrum, T* scratch) const;
  /// The unnormalised c2r transform at the support. The spectrum must be that of a real volume; padding is not used.
  void inverse(const T* spectrum, T* voxels, T* scratch) const;

  std::size_t scratch_bytes() const noexcept;
  double flops() const noexcept;  ///< of one direction

 private:
  /// An axis in the order of memory: outer, middle, inner.
  struct Axis {
    index_t support = 1;      // voxels
    index_t frequencies = 1;  // padding included
    index_t voxel_stride = 1;
    // exp(-2 pi i * f * j * step / n) as [j][f] and [f][j]; zero where f is padding. The inverse's are conjugated and,
    // on the halved axis, count each frequency as often as the whole spectrum holds it.
    std::vector<T> by_voxel, by_frequency, inverse_by_voxel;
  };

  index_t plane() const { return axes_[1].frequencies * axes_[2].frequencies; }

  std::array<Axis, 3> axes_;
};

/// sum[i] = sum over t < terms of c[t] * x[t][i], or added to what sum holds; complex numbers, i < count.
template <class T>
void linear_combination(const T* const* x, const T* c, index_t terms, index_t count, bool add, T* sum) noexcept;

}  // namespace convolume::fft
