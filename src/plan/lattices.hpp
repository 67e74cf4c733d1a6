// Strided and dilated convolutions as dense ones on sub-lattices of their tensors.
#pragma once

#include "convolume/plan.hpp"

namespace convolume::plan {

/// With stride s and dilation d that share no factor, along every axis,
///   y[r + d j] = sum over phases f < s and over m of w[f + s m] * x[s r + d f - pad + s d (j + m)].
/// So each residue r of y modulo d is a dense convolution by itself, a further sample; and each phase f of the kernel
/// is a further set of channels of x, on a lattice of its own. Lattices of one tensor differ by a voxel in extent:
/// `dense` has room for the largest, and what is not there counts as zero.
///
/// Unfolded along Z, as if the stride were as long as the kernel, every tap along Z is a phase: the dense convolution
/// is planar, and lattices of x overlap, so that they can be read but not written.
struct Lattices {
  Lattices() = default;
  /// Of a problem that is not transposed.
  explicit Lattices(const ConvProblem& problem, bool unfold_z = false);

  Extent3 x_step{1, 1, 1}, y_step{1, 1, 1}, w_step{1, 1, 1};  ///< between voxels of a lattice, in voxels
  /// One dense convolution: batch counts residues, channels are those of one phase. Its voxel 0 of x is the first one
  /// that any lattice has; padding may be negative.
  ConvProblem dense{};
  Extent3 shift_range{0, 0, 0};  ///< how far the shifts of lattices of x differ

  index_t residues() const noexcept { return y_step.z * y_step.y * y_step.x; }
  index_t phases() const noexcept { return w_step.z * w_step.y * w_step.x; }
  Extent3 residue(index_t i) const noexcept { return place(i, y_step); }
  Extent3 phase(index_t i) const noexcept { return place(i, w_step); }
  /// First voxel of a lattice of x, and where that voxel stands against voxel 0 of y's lattice: the product of voxel j
  /// of y and voxel m of w takes voxel j + m + shift of x, all three counted on their lattices.
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

/// Dilation where it has a meaning: 1 along axes on which the kernel has one voxel.
Extent3 effective_dilation(const ConvProblem& problem) noexcept;

}  // namespace convolume::plan
