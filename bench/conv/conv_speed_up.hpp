// Compares the time of a convolution on all threads with the time on one thread, and with what operations and bandwidth
// allow.
#pragma once

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Returns the exit status: 1 if a problem could not be measured.
int conv_speed_up(const ConvBenchOptions& options);

}  // namespace convolume::bench
