// Optimiser steps on a range of parameters.
#pragma once

#include <cstdint>

#include "convolume/tensor.hpp"

namespace convolume::ops {

/// Options of torch.optim.SGD with dampening 0.
struct SgdOptions {
  double learning_rate = 0.01, momentum = 0, weight_decay = 0;
  bool nesterov = false;
};

/// Options of torch.optim.Adam, or of AdamW if `decoupled`.
struct AdamOptions {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool decoupled = false;
};

// Both functions use g = gradient * gradient_scale (a clip factor, or one over the number of micro-batches). Ranges do
// not alias. The bits of an element do not depend on its position, so a tensor may be stepped in any pieces.
// Thread-safe; they allocate nothing.

/// Computes g += weight_decay * w; velocity = momentum * velocity + g; w -= learning_rate * velocity. With `nesterov`,
/// w -= learning_rate * (g + momentum * velocity). The velocity starts at zero; it may be null if the momentum is 0.
template <class T>
void sgd_step(const SgdOptions& options, double gradient_scale, T* w, T* velocity, const T* gradient,
              index_t n) noexcept;

/// Computes m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g²; w -= learning_rate / (1 - beta1^step) * m /
/// (sqrt(v / (1 - beta2^step)) + epsilon). Weight decay is added to g; if `decoupled`, it shrinks w before the step
/// instead. `step` counts from 1; m and v start at zero.
template <class T>
void adam_step(const AdamOptions& options, std::int64_t step, double gradient_scale, T* w, T* m, T* v,
               const T* gradient, index_t n) noexcept;

}  // namespace convolume::ops
