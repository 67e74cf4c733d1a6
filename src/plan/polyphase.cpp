#include "plan/polyphase.hpp"

#include <algorithm>
#include <limits>

namespace convolume::plan {
namespace {

index_t floor_quotient(index_t a, index_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
index_t ceil_quotient(index_t a, index_t b) { return (a + b - 1) / b; }

}  // namespace

Extent3 effective_dilation(const ConvProblem& problem) noexcept {
  Extent3 dilation = problem.dilation;
  for (int axis = 0; axis < 3; ++axis) dilation[axis] = problem.kernel[axis] == 1 ? 1 : dilation[axis];
  return dilation;
}

ConvProblem with_short_strides(const ConvProblem& problem) {
  // Shorter strides stay, so that the choices of ordinary problems do.
  constexpr index_t usual_stride = 4096;
  ConvProblem result = problem;
  for (int axis = 0; axis < 3; ++axis) {
    const index_t padding = problem.pad_before[axis] + problem.pad_after[axis];
    // Of a transposed problem, y is stepped over. With one voxel of x it is as long as the kernel and its own padding.
    if (problem.transposed && problem.input[axis] > 1) continue;
    const index_t most =
        problem.transposed ? problem.span()[axis] + problem.output_padding[axis] : problem.input[axis] + padding;
    if (problem.stride[axis] > usual_stride) {
      result.stride[axis] = std::min(problem.stride[axis], std::max(most, usual_stride));
    }
  }
  return result;
}

Polyphase::Polyphase(const ConvProblem& p, bool unroll_z)
    : y_step(effective_dilation(p)),
      w_step(p.stride),
      dense(p),
      stride_(p.stride),
      dilation_(y_step),
      pad_(p.pad_before) {
  x_step = y_step * w_step;
  if (unroll_z) w_step.z = p.kernel.z;
  dense.batch = p.batch * residues();
  dense.stride = dense.dilation = Extent3::all(1);
  const Extent3 output = p.output();
  for (int axis = 0; axis < 3; ++axis) {
    index_t least = std::numeric_limits<index_t>::max(), most = -least, end = -least;
    for (index_t r = 0; r < y_step[axis]; ++r) {
      for (index_t f = 0; f < w_step[axis]; ++f) {
        Extent3 residue{0, 0, 0}, phase{0, 0, 0};
        residue[axis] = r;
        phase[axis] = f;
        const index_t shift = x_shift(residue, phase)[axis], first = x_first(residue, phase)[axis];
        const index_t voxels = std::max<index_t>(0, ceil_quotient(p.input[axis] - first, x_step[axis]));
        least = std::min(least, shift);
        most = std::max(most, shift);
        end = std::max(end, voxels - shift);
      }
    }
    const index_t outputs = ceil_quotient(output[axis], y_step[axis]);
    dense.kernel[axis] = ceil_quotient(p.kernel[axis], w_step[axis]);
    dense.input[axis] = end + most;
    dense.pad_before[axis] = -most;
    dense.pad_after[axis] = outputs - 1 + dense.kernel[axis] - dense.input[axis] - dense.pad_before[axis];
    shift_range[axis] = most - least;
  }
}

Extent3 Polyphase::x_first(const Extent3& residue, const Extent3& phase) const noexcept {
  return base(residue, phase) - x_shift(residue, phase) * x_step;
}

Extent3 Polyphase::x_shift(const Extent3& residue, const Extent3& phase) const noexcept {
  Extent3 shift = base(residue, phase);
  for (int axis = 0; axis < 3; ++axis) shift[axis] = floor_quotient(shift[axis], x_step[axis]);
  return shift;
}

}  // namespace convolume::plan
