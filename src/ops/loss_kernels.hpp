// The range kernels of the losses. A null mask is 1 everywhere.
#pragma once

#include "convolume/tensor.hpp"

namespace convolume::ops {

/// Mask sums of the two classes of a binary target.
struct BinaryCounts {
  double negatives, positives;
};

/// The three sums of a soft Dice.
struct DiceSums {
  double overlap, predicted, target;
};

template <class T>
struct LossKernels {
  BinaryCounts (*count_binary)(const T* target, const T* mask, index_t n);
  /// gradient = m·w·(sigmoid(x) - t), w = positive where t >= 0.5, else negative; returns Σ m·w·bce.
  double (*binary)(const T* x, const T* target, const T* mask, T* gradient, index_t n, T negative, T positive);
  /// gradient = 2·m·w·(x - t); returns Σ m·w·(x - t)².
  double (*square)(const T* x, const T* target, const T* mask, T* gradient, index_t n, double weight);
  /// n voxels of `classes` channels, `stride` apart; gradient likewise. weight is per class; returns Σ m·w·l.
  double (*softmax)(const T* x, index_t stride, const T* target, const T* mask, T* gradient, index_t gradient_stride,
                    index_t n, index_t classes, const T* weight);
  DiceSums (*dice_sums)(const T* x, const T* target, const T* mask, index_t n);
  /// gradient = m·(of_target·m·t + of_all)·p·(1 - p), p = sigmoid(x).
  void (*dice_gradient)(const T* x, const T* target, const T* mask, T* gradient, index_t n, T of_target, T of_all);
};

/// The kernels of the current SIMD target.
template <class T>
LossKernels<T> loss_kernels() noexcept;

}  // namespace convolume::ops
