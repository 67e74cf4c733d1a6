// Checks the cost model: compares its choice with every engine and with other tiles.
#pragma once

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Returns the exit status: 1 if a problem could not be measured.
int conv_choices(const ConvBenchOptions& options);

}  // namespace convolume::bench
