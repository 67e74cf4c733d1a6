// The check of a bias that is bound to a convolution.
#pragma once

#include "convolume/conv_problem.hpp"
#include "convolume/tensor.hpp"

namespace convolume::conv {

/// Throws ShapeMismatch if the bias is missing, has another shape or type than the problem needs, or is not contiguous.
void check_bias(const ConvProblem& problem, const ConstTensorView& bias);

}  // namespace convolume::conv
