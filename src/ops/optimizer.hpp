// Optimiser steps on a range of parameters.
#pragma once

#include <cstdint>

#include "convolume/tensor.hpp"

namespace convolume::ops {

/// torch.optim.SGD with dampening 0.
struct SgdOptions {
  double learning_rate = 0.01, momentum = 0, weight_decay = 0;
  bool nesterov = false;
};

/// torch.optim.Adam, or AdamW where `decoupled`.
struct AdamOptions {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool decoupled = false;
};

// Both read g = gradient * gradient_scale (a clip, or one over the micro-batches). Ranges do not alias; the bits of an
// element do not depend on its position, so that a tensor may be stepped in any pieces. Thread-safe; nothing allocates.

/// g += weight_decay * w; velocity = momentum * velocity + g; w -= learning_rate * velocity, or with `nesterov`
/// learning_rate * (g + momentum * velocity). Velocity starts at zero; it may be null where the momentum is 0.
template <class T>
void sgd_step(const SgdOptions& options, double gradient_scale, T* w, T* velocity, const T* gradient,
              index_t n) noexcept;

/// m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g²; w -= learning_rate / (1 - beta1^step) * m /
/// (sqrt(v / (1 - beta2^step)) + epsilon). Weight decay is added to g, or shrinks w before the step where `decoupled`.
/// `step` counts from 1; m and v start at zero.
template <class T>
void adam_step(const AdamOptions& options, std::int64_t step, double gradient_scale, T* w, T* m, T* v,
               const T* gradient, index_t n) noexcept;

}  // namespace convolume::ops
