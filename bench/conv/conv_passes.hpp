// Executes passes of one competitor and nothing else, for profilers and cache simulators that watch the process.
#pragma once

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Executes options.rounds passes of each problem in each direction. Returns the exit status: 1 if a problem could not
/// be executed.
int conv_passes(const ConvBenchOptions& options);

}  // namespace convolume::bench
