// What the cost model of the tiled way expects of every stage, and what it takes.
#pragma once

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Returns the exit status: 1 where a problem could not be measured.
int conv_stages(const ConvBenchOptions& options);

}  // namespace convolume::bench
