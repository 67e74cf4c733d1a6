// The steps of Figure 8 of paper 003 (Zhao et al., swDNN) on this machine: from scalar loops to all threads.
#pragma once

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Returns the exit status: 1 if a problem could not be measured, or if a step computes something else than the
/// reference engine.
int conv_ladder(const ConvBenchOptions& options);

}  // namespace convolume::bench
