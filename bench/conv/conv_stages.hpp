// Compares the measured time of every stage of fft_tiled with the estimate of the cost model.
#pragma once

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Returns the exit status: 1 if a problem could not be measured.
int conv_stages(const ConvBenchOptions& options);

}  // namespace convolume::bench
