// The gradient with respect to a convolution's bias.
#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

/// dbias of one channel block: the sum, in double, of dy (times the activation's gradient at y) over samples and voxels
/// in their order. dy and y have the problem's y_layout. Takes scratch for a row.
template <class T>
void bias_gradient(const BackwardArguments& arguments, const ConvProblem& problem, index_t first_channel);

}  // namespace convolume::conv
