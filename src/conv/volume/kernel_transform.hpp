// Transforms convolution kernels to spectra of the whole volume and back.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "convolume/fft.hpp"
#include "fft/pruned_transform.hpp"

namespace convolume::conv {

/// Transforms the voxels of one kernel, at multiples of `dilation` in a volume that is otherwise zero, into the
/// spectrum of the volume. The inverse computes only these voxels from a spectrum. Each direction is either pruned, or
/// a plan of the volume whose support is the kernel, with zeros between dilated voxels. If FFTW transforms the volumes,
/// it transforms the kernels too. Otherwise pruned_is_faster() decides (docs/adr/0001 and 0008). Immutable and
/// thread-safe.
template <class T>
class KernelTransform {
 public:
  /// Spectra have the layout of the spectra of `volume`. `volume` is an r2c plan of one volume, which Plan::make() with
  /// `options` would return again.
  KernelTransform(const fft::Plan& volume, const Extent3& kernel, const Extent3& dilation, const fft::Options& options);

  /// Computes the spectrum. `voxels` has kernel.z x kernel.y x kernel.x values without gaps. Writes the whole spectrum,
  /// including the padding, which gets finite values.
  void forward(const T* voxels, T* spectrum, T* scratch) const;
  /// Computes the unnormalised c2r transform at the voxels of the kernel. The spectrum must be the spectrum of a real
  /// volume.
  void inverse(const T* spectrum, T* voxels, T* scratch) const;

  std::size_t scratch_bytes() const noexcept;
  double flops() const noexcept;  ///< operations of one direction
  /// Returns everything that decides rounding, as text.
  std::string describe() const;

 private:
  Extent3 kernel_{}, box_{};                                  // box_: the kernel with the voxels between dilated voxels
  std::array<index_t, 5> volume_stride_{}, kernel_stride_{};  // in the volume, between voxels and between taps
  std::optional<fft::PrunedTransform<T>> pruned_;
  std::optional<fft::Plan> forward_, inverse_;  // empty if the direction is pruned
  std::size_t volume_bytes_ = 0;
};

/// Returns whether a direction of a kernel's transform is faster axis by axis, by the definition of the DFT, than by a
/// native plan of the volume. Depends only on the arguments.
bool pruned_is_faster(const fft::Problem& volume, const Extent3& kernel, const Extent3& dilation, bool forward);

/// Computes target = scale * source over the voxels of one kernel, or adds this to target.
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
