// The least time in which this machine can compute a convolution.
#pragma once

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Returns the least seconds on `threads` cores. The candidates are overlap-save with tiles of good sizes up to 64
/// voxels along every axis, the direct method, and for kernels of 3 x 3 x 3 voxels Toom-Cook. Each takes its operations
/// at the peak rate or its bytes at the memory bandwidth, whichever is longer.
double floor_seconds(const ConvProblem& problem, Direction direction, int threads, bool cached_weights);

}  // namespace convolume::bench
