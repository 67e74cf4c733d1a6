// Which problems tiles in the frequency domain support, and the memory that they take.
#pragma once

#include <string>

#include "plan/tiled_cost.hpp"

namespace convolume::plan {

/// Returns why tiles do not support the problem, or an empty string. Stride and dilation of a transposed problem are
/// those of the convolution whose gradient it is.
std::string tiles_unsupported_reason(const ConvProblem& problem);

/// Returns the estimated bytes that the wanted directions hold beside the tensors: spectra of the weights and of their
/// gradient. The problem must not be transposed.
double tiled_bytes(const ConvProblem& problem, const Tilings& tilings);

}  // namespace convolume::plan
