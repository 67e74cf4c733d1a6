// Group, instance and layer normalisation (Wu & He, "Group Normalization", ECCV 2018).
#pragma once

#include <memory_resource>

#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// Options as in torch.nn.GroupNorm. groups = channels is instance norm; groups = 1 is layer norm over (C, Z, Y, X).
struct GroupNorm {
  index_t groups = 1;
  double epsilon = 1e-5;
  Activation activation{};  ///< applied to the result, with the bits of append_activation_forward() and _backward()
};

/// Mean and 1 / sqrt(variance + epsilon) of each (sample, group), at [n * groups + g]. The forward pass writes them for
/// the backward pass.
struct NormStatistics {
  double* mean = nullptr;
  double* rstd = nullptr;
};

/// Appends y = activation((x - mean) · rstd · gamma[c] + beta[c]) with the biased variance. x and y have the same
/// shape, the same layout and dense channel blocks. y may be x. gamma and beta hold one number per channel and are read
/// when a task runs; null means 1 and 0. Each task sums a Z range of a channel block in double, twice: first for its
/// mean, then for the squared deviations from it. The sums of the Z ranges come from `memory` and are owned by the
/// graph. They are joined in order of channels and Z ranges (Chan et al., "Algorithms for computing the sample
/// variance", 1983). So the bits depend only on shape, layout and SIMD target. Throws ShapeMismatch if the number of
/// groups does not divide the channels.
template <class T>
Ready append_group_norm_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const T* gamma,
                                const T* beta, const View<T>& y, const NormStatistics& statistics,
                                const GroupNorm& norm, std::pmr::memory_resource* memory);

/// The results that the backward pass completes.
struct GroupNormGradients {
  Ready dx;
  Ready parameters;  ///< all of dgamma and dbeta
};

/// Appends the gradients. dx is not computed if its data is null, is added to if add_dx, and may be dy. dgamma and
/// dbeta are not computed if null, and are added to if add_parameters; they are summed in order of samples and Z
/// ranges. x, dy and dx have the same shape, the same layout and dense channel blocks. With an activation, its output
/// is computed again from x, gamma and beta, so y is not read; dx must be dy, and must not be added to. Otherwise beta
/// is not read.
template <class T>
GroupNormGradients append_group_norm_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x,
                                              const T* gamma, const T* beta, const NormStatistics& statistics,
                                              const ConstView<T>& dy, const View<T>& dx, bool add_dx, T* dgamma,
                                              T* dbeta, bool add_parameters, const GroupNorm& norm,
                                              std::pmr::memory_resource* memory);

}  // namespace convolume::ops
