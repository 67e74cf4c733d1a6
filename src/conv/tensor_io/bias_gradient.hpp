// The gradient of a convolution's bias, and the outline that all gradients share.
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

/// Appends the gradients that are bound: append_data() appends dx, append_weights() appends dw, and dbias is the same
/// for all engines.
template <class T, class Data, class Weights>
ConvGradientReady append_gradients(TaskGraph& graph, const ConvReady& ready, const ConvProblem& problem,
                                   const std::shared_ptr<const BackwardArguments>& arguments, const Data& append_data,
                                   const Weights& append_weights) {
  ConvGradientReady result;
  if (arguments->dx) result.dx = append_data();
  if (arguments->dw) result.dw = append_weights();
  if (arguments->dbias) result.dbias = append_bias_gradient<T>(graph, ready.dy, problem, arguments);
  return result;
}

}  // namespace convolume::conv
