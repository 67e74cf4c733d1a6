// The least time in which this machine can compute a convolution.
#pragma once

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Returns the least seconds on `threads` cores. The candidates are overlap-save with tiles of good sizes up to 64
/// voxels along every axis, the direct method, and Toom-Cook for kernels of 3 voxels along some axes and 1 along the
/// others. Each takes its operations at the peak rate or its bytes at the memory bandwidth, whichever is longer.
double floor_seconds(const ConvProblem& problem, Direction direction, int threads, bool cached_weights);

}  // namespace convolume::bench
