// Measures streamed convolutions between sources and sinks whose transfers cost a given time.
#pragma once

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Returns the exit status: 1 if a problem could not be measured.
int conv_streamed(const ConvBenchOptions& options);

}  // namespace convolume::bench
