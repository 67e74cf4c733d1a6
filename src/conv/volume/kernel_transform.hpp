// Convolution kernels to spectra of the whole volume and back, whichever way is chosen.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "convolume/fft.hpp"
#include "fft/pruned_transform.hpp"

namespace convolume::conv {

/// The spectrum of a volume that is zero but for the voxels of one kernel, at multiples of `dilation`, and from a
/// spectrum those voxels alone. Each direction is either pruned, or a plan of the volume whose support is the kernel,
/// with zeros between dilated voxels. Where FFTW transforms the volumes it transforms the kernels too; elsewhere
/// pruned_is_faster() chooses (docs/adr/0001 and 0008). Immutable and thread-safe.
template <class T>
class KernelTransform {
 public:
  /// Spectra are laid out as those of `volume`, an r2c plan of one volume that `options` would give again.
  KernelTransform(const fft::Plan& volume, const Extent3& kernel, const Extent3& dilation, const fft::Options& options);

  /// `voxels` is dense, kernel.z x kernel.y x kernel.x. Writes all of the spectrum; padding is finite.
  void forward(const T* voxels, T* spectrum, T* scratch) const;
  /// The unnormalised c2r transform at the kernel's voxels. The spectrum must be that of a real volume.
  void inverse(const T* spectrum, T* voxels, T* scratch) const;

  std::size_t scratch_bytes() const noexcept;
  double flops() const noexcept;  ///< of one direction
  /// Everything that decides the rounding, as text.
  std::string describe() const;

 private:
  Extent3 kernel_{}, box_{};                                  // box: the kernel with what lies between dilated voxels
  std::array<index_t, 5> volume_stride_{}, kernel_stride_{};  // from voxel to voxel in the volume
  std::optional<fft::PrunedTransform<T>> pruned_;
  std::optional<fft::Plan> forward_, inverse_;  // where a direction is not pruned
  std::size_t volume_bytes_ = 0;
};

/// Whether a direction of a kernel's transform is faster axis by axis by the definition than by a native plan of the
/// volume. Depends on the arguments alone.
bool pruned_is_faster(const fft::Problem& volume, const Extent3& kernel, const Extent3& dilation, bool forward);

/// target = scale * source over the voxels of one kernel, or added to it.
template <class T>
void copy_kernel(const Extent3& kernel, const T* source, const std::array<index_t, 5>& from, T* target,
                 const std::array<index_t, 5>& to, bool add = false, T scale = 1) {
  for (index_t z = 0; z < kernel.z; ++z) {
    for (index_t y = 0; y < kernel.y; ++y) {
      for (index_t x = 0; x < kernel.x; ++x) {
        T& value = target[z * to[2] + y * to[3] + x * to[4]];
        const T scaled = scale * source[z * from[2] + y * from[3] + x * from[4]];
        value = add ? value + scaled : scaled;
      }
    }
  }
}

}  // namespace convolume::conv
