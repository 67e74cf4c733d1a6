// How much faster a convolution is on all threads than on one, and how much operations and bandwidth allow.
#pragma once

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Returns the exit status: 1 where a problem could not be measured.
int conv_speed_up(const ConvBenchOptions& options);

}  // namespace convolume::bench
