// Group, instance and layer normalisation (Wu & He, "Group Normalization", ECCV 2018).
#pragma once

#include <memory_resource>

#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// groups = channels is instance norm, groups = 1 is layer norm over (C, Z, Y, X). As torch.nn.GroupNorm.
struct GroupNorm {
  index_t groups = 1;
  double epsilon = 1e-5;
};

/// Mean and 1 / sqrt(variance + epsilon) of each (sample, group), [n * groups + g]; written by the forward pass for the
/// backward pass.
struct NormStatistics {
  double* mean = nullptr;
  double* rstd = nullptr;
};

/// y = (x - mean) · rstd · gamma[c] + beta[c] with the biased variance. x and y have one shape, one layout and dense
/// channel blocks; y may be x. gamma and beta hold one number per channel and are read when a task runs; null means 1
/// and 0. Each task sums a slab of a channel block in double, twice: for its mean, and for the squares around that. The
/// sums of the slabs are taken from `memory`, owned by the graph and joined in order of channels and slabs (Chan et
/// al., "Algorithms for computing the sample variance", 1983): the bits follow from shape, layout and SIMD target
/// alone. Throws ShapeMismatch where the groups do not divide the channels.
template <class T>
Ready append_group_norm_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const T* gamma,
                                const T* beta, const View<T>& y, const NormStatistics& statistics,
                                const GroupNorm& norm, std::pmr::memory_resource* memory);

/// What the backward pass completes.
struct GroupNormGradients {
  Ready dx;
  Ready parameters;  ///< all of dgamma and dbeta
};

/// dx (absent where its data is null; += with add_dx; may be dy), dgamma and dbeta (each absent where null; += with
/// add_parameters), summed in order of samples and slabs. x, dy and dx have one shape, one layout and dense channel
/// blocks.
template <class T>
GroupNormGradients append_group_norm_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x,
                                              const T* gamma, const NormStatistics& statistics, const ConstView<T>& dy,
                                              const View<T>& dx, bool add_dx, T* dgamma, T* dbeta, bool add_parameters,
                                              const GroupNorm& norm, std::pmr::memory_resource* memory);

}  // namespace convolume::ops
