#include "conv/volume/kernel_transform.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/checked.hpp"

namespace convolume::conv {
namespace {

/// Returns the strides of the voxels of one feature map without gaps.
std::array<index_t, 5> dense_stride(const Extent3& extent) { return {0, 0, extent.y * extent.x, extent.x, 1}; }

}  // namespace

// Measured for 7 to 256 points per axis and kernels of 1 to 7 voxels (Zen 4, AVX-512, float; docs/adr/0008). A pruned
// pass costs one multiply-add per frequency for each voxel of the kernel along the axis that is outermost in memory.
// The time of a transform that skips zeros hardly depends on the kernel. In rotated order the innermost axis is padded
// to whole vectors, without which pruned passes are slow. The forward pruned pass writes each frequency once, but a
// plan goes over the spectrum twice. This decides if the spectrum is not in the caches, as is true for spectra that are
// kept.
bool pruned_is_faster(const fft::Problem& volume, const Extent3& kernel, const Extent3& dilation, bool forward) {
  if (dilation != Extent3::all(1)) return true;
  if (volume.order == fft::Order::rotated) return kernel.y <= (forward ? 7 : 4);
  return (volume.extent.z > 1 ? kernel.z : kernel.y) <= 1;
}

template <class T>
KernelTransform<T>::KernelTransform(const fft::Plan& volume, const Extent3& kernel, const Extent3& dilation,
                                    const fft::Options& options)
    : kernel_(kernel) {
  const bool native = volume.backend() == fft::Backend::native;
  fft::Problem problem{
      .type = volume.problem().type, .extent = volume.problem().extent, .order = volume.problem().order};
  for (int axis = 0; axis < 3; ++axis) problem.support[axis] = (kernel[axis] - 1) * dilation[axis] + 1;
  box_ = problem.support;
  volume_stride_ = dense_stride(problem.extent);
  const auto make = [&](fft::Kind kind, std::optional<fft::Plan>& plan) {
    if (native && pruned_is_faster(problem, kernel, dilation, kind == fft::Kind::r2c)) return;
    problem.kind = kind;
    plan = fft::Plan::make(problem, options);
    volume_bytes_ = static_cast<std::size_t>(round_up(static_cast<index_t>(plan->space_bytes()), 64));
  };
  make(fft::Kind::r2c, forward_);
  make(fft::Kind::c2r, inverse_);
  if (!forward_ || !inverse_) pruned_.emplace(volume, kernel, dilation);
  kernel_stride_ = volume_stride_;
  for (std::size_t axis = 0; axis < 3; ++axis) kernel_stride_[2 + axis] *= dilation[static_cast<int>(axis)];
}

template <class T>
std::size_t KernelTransform<T>::scratch_bytes() const noexcept {
  std::size_t bytes = pruned_ ? pruned_->scratch_bytes() : 0;
  for (const auto* plan : {&forward_, &inverse_}) {
    if (*plan) bytes = std::max(bytes, volume_bytes_ + (*plan)->scratch_bytes());
  }
  return bytes;
}

template <class T>
double KernelTransform<T>::flops() const noexcept {
  return pruned_ ? pruned_->flops() : forward_->flops();
}

template <class T>
std::string KernelTransform<T>::describe() const {
  const auto describe_direction = [](const std::optional<fft::Plan>& plan) {
    return plan ? plan->describe() : "pruned";
  };
  return fmt::format("{} and back {}", describe_direction(forward_), describe_direction(inverse_));
}

template <class T>
void KernelTransform<T>::forward(const T* voxels, T* spectrum, T* scratch) const {
  if (!forward_) return pruned_->forward(voxels, spectrum, scratch);
  T* volume = scratch;
  for (index_t z = 0; z < box_.z && box_ != kernel_; ++z) {
    for (index_t y = 0; y < box_.y; ++y) {
      std::fill_n(volume + z * volume_stride_[2] + y * volume_stride_[3], box_.x, T{0});
    }
  }
  copy_kernel(kernel_, voxels, dense_stride(kernel_), volume, kernel_stride_);
  forward_->execute(volume, spectrum, scratch + volume_bytes_ / sizeof(T));
}

template <class T>
void KernelTransform<T>::inverse(const T* spectrum, T* voxels, T* scratch) const {
  if (!inverse_) return pruned_->inverse(spectrum, voxels, scratch);
  T* volume = scratch;
  inverse_->execute(spectrum, volume, scratch + volume_bytes_ / sizeof(T));
  copy_kernel(kernel_, static_cast<const T*>(volume), kernel_stride_, voxels, dense_stride(kernel_));
}

template class KernelTransform<float>;
template class KernelTransform<double>;

}  // namespace convolume::conv
