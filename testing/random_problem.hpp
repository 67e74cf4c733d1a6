// Random convolution problems for property tests.
#pragma once

#include <cstdint>

#include "convolume/conv_problem.hpp"

namespace convolume::test {

/// The ranges from which random_problem() draws.
struct ProblemRanges {
  std::uint64_t stream = 0;    ///< distinct streams give distinct sequences of problems
  index_t most_channels = 40;  ///< per side; one problem in three draws from the whole range, the others up to 10
  index_t most_voxels = 14;    ///< of x, along each axis
  index_t most_kernel = 6;     ///< voxels of the kernel, along each axis
  bool strides = true;         ///< stride and dilation up to 3
  bool transposed = true;      ///< one problem in three is transposed
  bool groups = true;          ///< one problem in three has groups
  bool depthwise = true;       ///< one problem in six is depthwise
  bool rectifiers = false;     ///< ReLU and leaky ReLU; otherwise only activations with a smooth gradient
  double most_flops = 3e7;     ///< of one direction, computed directly
};

/// Draws problem number `seed` from the ranges. The problem is valid, in float and in plain layout. Thread-safe.
ConvProblem random_problem(const ProblemRanges& ranges, std::uint64_t seed);

}  // namespace convolume::test
