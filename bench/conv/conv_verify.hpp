// Every engine in every direction against the definition of convolution.
#pragma once

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Small integers have to come out exactly, random numbers within a relative error of 2e-6 in float and 1e-13 in
/// double. Returns the exit status: 1 where anything failed.
int conv_verify(const ConvBenchOptions& options);

}  // namespace convolume::bench
