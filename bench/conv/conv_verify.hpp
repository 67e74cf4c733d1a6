// Compares every engine, in every direction, with the definition of convolution.
#pragma once

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Requires exact results for small integers, and for random numbers a relative error of at most 2e-6 in float and
/// 1e-13 in double. Returns the exit status: 1 if anything failed.
int conv_verify(const ConvBenchOptions& options);

}  // namespace convolume::bench
