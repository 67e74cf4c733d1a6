// From probabilities to scores.
#pragma once

#include <span>

#include "convolume/nets.hpp"
#include "nets/net_spec.hpp"

namespace convolume::nets {

/// The probability of anything but class 0: the one channel of a sigmoid, or 1 - p[0] of a softmax.
Tensor<float> foreground(const NetSpec& spec, Tensor<float> probabilities);

/// Scores over several volumes taken together. Empty masks count everything.
Scores score(std::span<const View<const float>> probabilities, std::span<const View<const float>> labels,
             std::span<const View<const float>> masks, double threshold, std::pmr::memory_resource* memory);

}  // namespace convolume::nets
