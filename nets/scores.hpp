// Computes scores from probabilities.
#pragma once

#include <span>

#include "convolume/nets.hpp"
#include "nets/net_spec.hpp"

namespace convolume::nets {

/// Returns the probability of any class but class 0: the only channel of a sigmoid, or 1 - p[0] of a softmax.
Tensor<float> foreground(const NetSpec& spec, Tensor<float> probabilities);

/// Returns scores over several volumes together. If a mask is empty, every voxel of its volume counts.
Scores score(std::span<const View<const float>> probabilities, std::span<const View<const float>> labels,
             std::span<const View<const float>> masks, double threshold, std::pmr::memory_resource* memory);

}  // namespace convolume::nets
