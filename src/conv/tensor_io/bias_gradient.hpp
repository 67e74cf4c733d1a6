// The gradient of a convolution's bias, and the outline that all gradients share.
#pragma once

#include "conv/engine.hpp"
#include "ops/activation.hpp"
#include "ops/norm_kernels.hpp"
#include "ops/reduce.hpp"

namespace convolume::conv {

/// Computes dbias with the kernels of the SIMD target that was current when the object was made. Thread-safe.
template <class T>
class BiasGradient {
 public:
  explicit BiasGradient(const ConvProblem& problem) : problem_(problem) {}

  /// Appends tasks that compute dbias, one per channel block.
  Ready append(TaskGraph& graph, const Ready& dy_ready,
               const std::shared_ptr<const BackwardArguments>& arguments) const;

 private:
  void run(const BackwardArguments& arguments, index_t first_channel) const;
  void add_row(const T* row, index_t voxels, bool blocked, index_t channel, ops::LaneSums<T>& sums) const;

  ConvProblem problem_;
  ops::ActivationKernels<T> activations_ = ops::activation_kernels<T>();
  ops::ReduceKernels<T> sums_ = ops::reduce_kernels<T>();
  ops::NormKernels<T> lane_sums_ = ops::norm_kernels<T>();
};

/// Appends the gradients that are bound: append_data() appends dx, append_weights() appends dw, and dbias is the same
/// for all engines.
template <class T, class Data, class Weights>
ConvGradientReady append_gradients(TaskGraph& graph, const ConvReady& ready, const BiasGradient<T>& bias,
                                   const std::shared_ptr<const BackwardArguments>& arguments, const Data& append_data,
                                   const Weights& append_weights) {
  ConvGradientReady result;
  if (arguments->dx) result.dx = append_data();
  if (arguments->dw) result.dw = append_weights();
  if (arguments->dbias) result.dbias = bias.append(graph, ready.dy, arguments);
  return result;
}

}  // namespace convolume::conv
