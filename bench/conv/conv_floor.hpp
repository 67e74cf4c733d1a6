// The least time in which this machine could convolve.
#pragma once

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Seconds on so many cores: the least, over tiles of good sizes up to 64 voxels along every axis that the kernel looks
/// along, of the operations of the tiled FFT way at the peak, or its bytes at the bandwidth of memory, whichever takes
/// longer; or likewise the operations of the direct way and the bytes of the tensors, where that is less.
double floor_seconds(const ConvProblem& problem, Direction direction, int threads, bool cached_weights);

}  // namespace convolume::bench
