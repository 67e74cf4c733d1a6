// How good the cost model's choice is: `automatic` against every engine and other tiles, by explicit choice.
#pragma once

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Returns the exit status: 1 where a problem could not be measured.
int conv_choices(const ConvBenchOptions& options);

}  // namespace convolume::bench
