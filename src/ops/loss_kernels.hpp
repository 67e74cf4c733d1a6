// The kernels of the losses, over ranges of voxels. A null mask is 1 everywhere.
#pragma once

#include "convolume/tensor.hpp"

namespace convolume::ops {

/// Sums of the mask over the two classes of a binary target.
struct BinaryCounts {
  double negatives, positives;
};

/// The three sums of a soft Dice loss.
struct DiceSums {
  double overlap, predicted, target;
};

template <class T>
struct LossKernels {
  BinaryCounts (*count_binary)(const T* target, const T* mask, index_t n);
  /// Writes gradient = m·w·(sigmoid(x) - t), where w = positive if t >= 0.5, else negative. Returns Σ m·w·bce.
  double (*binary)(const T* x, const T* target, const T* mask, T* gradient, index_t n, T negative, T positive);
  /// Writes gradient = 2·m·w·(x - t), where w = weight. Returns Σ m·w·(x - t)².
  double (*square)(const T* x, const T* target, const T* mask, T* gradient, index_t n, double weight);
  /// Handles n voxels of `classes` channels, which lie `stride` apart, and `gradient_stride` apart in the gradient.
  /// `weight` holds one number per class. Returns Σ m·w·l.
  double (*softmax)(const T* x, index_t stride, const T* target, const T* mask, T* gradient, index_t gradient_stride,
                    index_t n, index_t classes, const T* weight);
  DiceSums (*dice_sums)(const T* x, const T* target, const T* mask, index_t n);
  /// Writes gradient = m·(of_target·m·t + of_all)·p·(1 - p), where p = sigmoid(x).
  void (*dice_gradient)(const T* x, const T* target, const T* mask, T* gradient, index_t n, T of_target, T of_all);
};

/// Returns the kernels of the current SIMD target.
template <class T>
LossKernels<T> loss_kernels() noexcept;

}  // namespace convolume::ops
