// Runs a transform a given number of times, for tools that observe a whole process.
#pragma once

#include "bench/fft/fft_options.hpp"

namespace convolume::bench {

/// Plans a cube with the one size, implementation, kind and order in the options. Executes it options.repeat times on
/// the same buffers. Nothing else depends on that number. FFTW plans with FFTW_ESTIMATE. Returns the exit status.
int once(const FftOptions& options);

}  // namespace convolume::bench
