// Losses on dense predictions, with their gradients.
#pragma once

#include <memory_resource>

#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

enum class LossKind {
  /// l = bce(sigmoid(logit), target), target in [0, 1], computed from the logit. Loss = the mean over channels of
  /// Σ m·w·l / Σ m·w.
  binary_cross_entropy,
  /// l = logsumexp(logits of a voxel) - logit of its class. Loss = Σ m·w·l / Σ m·w.
  softmax_cross_entropy,
  /// l = (logit - target)². Loss = Σ m·l / Σ m.
  square,
  /// Soft Dice of p = m·sigmoid(logit) and t = m·target: the mean over channels of 1 - (2 Σ p·t + s) / (Σ p + Σ t + s).
  /// The sums run over the batch and the voxels; s is `smooth`.
  dice
};

const char* name_of(LossKind kind) noexcept;

/// The weight w is 1 unless an option here changes it. The two classes of binary_cross_entropy are target >= 0.5 and
/// the rest.
struct LossOptions {
  LossKind kind = LossKind::binary_cross_entropy;
  /// Gives all classes the same total weight: the factor is total / (classes · count of the class). Counts are sums of
  /// m over the batch and the voxels; for binary_cross_entropy, each channel has counts of its own. A class that is
  /// absent contributes nothing. Only the cross entropies use this option.
  bool rebalance = false;
  double positive_weight = 1;  ///< a further factor of w if target >= 0.5; only for binary_cross_entropy
  double smooth = 1;           ///< s of dice; not negative
};

/// The tensors of a loss. logits and dlogits are N C Z Y X. The target has the same shape; for softmax_cross_entropy it
/// has one channel of class indices (whole numbers in [0, C)). The mask m is N 1 Z Y X and not negative; if its data is
/// null, it is 1 everywhere. All tensors are plain with dense feature maps. If the mask of a voxel is zero, its logits
/// and targets are ignored. dlogits is overwritten by the gradient of the loss and must not overlap any other tensor.
/// An all-zero mask gives loss 0 and gradient 0.
template <class T>
struct LossBindings {
  View<const T> logits, target, mask;
  View<T> dlogits;
  double* loss = nullptr;  ///< written by the last task; valid when the run has ended
};

/// Throws ShapeMismatch or InvalidArgument that names the mismatch.
template <class T>
void validate(const LossOptions& options, const LossBindings<T>& bindings);

/// Appends the tasks of a loss and its gradient: one per Z range. The number of Z ranges depends only on the shape.
/// `ready` completes the logits, `labels` completes target and mask. The result completes dlogits. If a class index is
/// out of range, the run ends with InvalidArgument that names voxel and value. Partial sums come from `memory`, are
/// owned by the graph, and are added in index order. So the bits do not depend on the number of threads.
template <class T>
Ready append_loss(TaskGraph& graph, const Ready& ready, const LossOptions& options, const LossBindings<T>& bindings,
                  std::pmr::memory_resource* memory, const Ready& labels = {});

}  // namespace convolume::ops
