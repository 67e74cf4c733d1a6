// The gradient with respect to a convolution's bias.
#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

/// dbias of one channel block: the sum, in double, of dy (times the activation's gradient at y) over samples and voxels
/// in their order. dy and y have the problem's y_layout. Takes scratch for a row.
template <class T>
void bias_gradient(const BackwardArguments& arguments, const ConvProblem& problem, index_t first_channel);

/// The same as tasks, one per channel block.
template <class T>
Ready append_bias_gradient(TaskGraph& graph, const Ready& dy_ready, const ConvProblem& problem,
                           const std::shared_ptr<const BackwardArguments>& arguments);

}  // namespace convolume::conv
