// Losses on dense predictions, with their gradients.
#pragma once

#include <memory_resource>

#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

enum class LossKind {
  /// l = bce(sigmoid(logit), target), target in [0, 1], computed from the logit. Loss = Σ m·w·l / Σ m·w.
  binary_cross_entropy,
  /// l = logsumexp(logits of a voxel) - logit of its class. Loss = Σ m·w·l / Σ m·w.
  softmax_cross_entropy,
  /// l = (logit - target)². Loss = Σ m·l / Σ m.
  square,
  /// Soft Dice of p = m·sigmoid(logit) and t = m·target: the mean over channels of 1 - (2 Σ p·t + s) / (Σ p + Σ t + s),
  /// sums over the batch and the voxels, s = `smooth`.
  dice
};

const char* name_of(LossKind kind) noexcept;

/// w is 1 unless changed here: the two classes of binary_cross_entropy are target >= 0.5 and the rest.
struct LossOptions {
  LossKind kind = LossKind::binary_cross_entropy;
  /// Classes weigh the same in sum: each is weighted by total / (classes · its count), counts being sums of m over the
  /// tensor, channels together. A class that is absent has no part. For the cross entropies; ignored by the others.
  bool rebalance = false;
  double positive_weight = 1;  ///< further factor of w where target >= 0.5; binary_cross_entropy alone
  double smooth = 1;           ///< s of dice; not negative
};

/// logits and dlogits are N C Z Y X. The target has that shape, or one channel that holds class indices (whole numbers
/// in [0, C)) for softmax_cross_entropy. The mask m is N 1 Z Y X, not negative, or absent (data null), which is 1
/// everywhere. All are plain, with dense feature maps. Where the mask is zero, logits and targets are not looked at.
/// dlogits is overwritten by the gradient of the loss and must not overlap anything else. An all-zero mask gives loss
/// and gradient 0.
template <class T>
struct LossBindings {
  View<const T> logits, target, mask;
  View<T> dlogits;
  double* loss = nullptr;  ///< written by the last task; valid when the run has ended
};

/// Throws ShapeMismatch or InvalidArgument saying what does not fit.
template <class T>
void validate(const LossOptions& options, const LossBindings<T>& bindings);

/// Adds the tasks of a loss and its gradient: one per slab of planes, whose number is a function of the shape. `ready`
/// completes the logits, `labels` target and mask. The result completes dlogits. A class index that is not in range
/// ends the run with InvalidArgument naming voxel and value. Partial sums come from `memory`, are owned by the graph
/// and added in index order: the bits do not depend on threads.
template <class T>
Ready append_loss(TaskGraph& graph, const Ready& ready, const LossOptions& options, const LossBindings<T>& bindings,
                  std::pmr::memory_resource* memory, const Ready& labels = {});

}  // namespace convolume::ops
