// Strided and dilated convolutions as dense convolutions of the polyphase components of their tensors.
#pragma once

#include "convolume/conv_problem.hpp"

namespace convolume::plan {

/// Returns the problem with strides above 4096 that are no longer than the tensor that they step over. A longer stride
/// takes no step, so the results are the same, while the phases of a decomposition would be as many as the stride is
/// long.
ConvProblem with_short_strides(const ConvProblem& problem);

/// Polyphase decomposition. With stride s and dilation d that share no factor, along every axis:
///   y[r + d j] = sum over phases f < s and over m of w[f + s m] * x[s r + d f - pad + s d (j + m)].
/// So each residue r of y modulo d is a separate dense convolution, which is treated as a further sample. Each phase f
/// of the kernel is a further set of channels of x, which is a polyphase component of x. The components of one tensor
/// differ by at most one voxel in extent. `dense` has room for the largest one; missing voxels count as zero.
///
/// With `unroll_z`, Z is unrolled into channels (im2col along Z): every tap along Z is a phase, as if the stride were
/// as long as the kernel. Then the dense convolution is planar. The components of x overlap, so they can be read but
/// not written.
struct Polyphase {
  Polyphase() = default;
  /// `problem` must not be transposed.
  explicit Polyphase(const ConvProblem& problem, bool unroll_z = false);

  Extent3 x_step{1, 1, 1}, y_step{1, 1, 1}, w_step{1, 1, 1};  ///< between voxels of a component, in voxels
  /// The dense convolution. Its batch includes the residues; its channels are those of one phase. Its voxel 0 of x is
  /// the first voxel of any component. Padding may be negative.
  ConvProblem dense{};
  Extent3 shift_range{0, 0, 0};  ///< how far the shifts of the components of x differ

  index_t residues() const noexcept { return y_step.z * y_step.y * y_step.x; }
  index_t phases() const noexcept { return w_step.z * w_step.y * w_step.x; }
  Extent3 residue(index_t i) const noexcept { return place(i, y_step); }
  Extent3 phase(index_t i) const noexcept { return place(i, w_step); }
  /// Return the first voxel of a component of x, and its shift relative to voxel 0 of y's component. The product of
  /// voxel j of y and voxel m of w uses voxel j + m + shift of x; all three are numbered within their components.
  Extent3 x_first(const Extent3& residue, const Extent3& phase) const noexcept;
  Extent3 x_shift(const Extent3& residue, const Extent3& phase) const noexcept;

 private:
  static Extent3 place(index_t i, const Extent3& step) noexcept {
    return {i / (step.y * step.x), i / step.x % step.y, i % step.x};
  }
  Extent3 base(const Extent3& residue, const Extent3& phase) const noexcept {
    return residue * stride_ + phase * dilation_ - pad_;
  }

  Extent3 stride_{1, 1, 1}, dilation_{1, 1, 1}, pad_{0, 0, 0};
};

/// Returns the dilation, but 1 along axes on which the kernel has one voxel and dilation has no effect.
Extent3 effective_dilation(const ConvProblem& problem) noexcept;

}  // namespace convolume::plan
