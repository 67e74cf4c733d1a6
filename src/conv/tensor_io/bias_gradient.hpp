// Computes the gradient of a convolution's bias.
#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

/// Computes dbias of one channel block: the sum over samples and voxels, in their order and in double, of dy times the
/// activation's gradient at y. dy and y have the problem's y_layout. Takes scratch for one row from arguments.memory.
template <class T>
void bias_gradient(const BackwardArguments& arguments, const ConvProblem& problem, index_t first_channel);

/// Appends tasks that do the same, one per channel block.
template <class T>
Ready append_bias_gradient(TaskGraph& graph, const Ready& dy_ready, const ConvProblem& problem,
                           const std::shared_ptr<const BackwardArguments>& arguments);

}  // namespace convolume::conv
