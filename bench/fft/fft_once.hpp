// Transforms run a given number of times, for tools that watch a whole process.
#pragma once

#include "bench/fft/fft_options.hpp"

namespace convolume::bench {

/// Plans a cube of options.sizes, which holds one, with the one implementation, kind and order that are named, and
/// executes it options.repeat times on the same buffers. Nothing else depends on that number. FFTW plans with
/// FFTW_ESTIMATE. Returns the exit status.
int once(const FftOptions& options);

}  // namespace convolume::bench
