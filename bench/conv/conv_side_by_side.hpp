// Times convolutions of this library, of oneDNN and of fft_volume in turn, in one process.
#pragma once

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Returns the exit status: 1 if competitors disagree about a result.
int conv_side_by_side(const ConvBenchOptions& options);

}  // namespace convolume::bench
