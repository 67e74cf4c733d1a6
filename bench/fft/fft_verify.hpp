// Every kind, order, precision and instruction set of the native transforms, held against a reference.
#pragma once

#include "bench/fft/fft_options.hpp"

namespace convolume::bench {

/// Lines of every length in options.sizes, and cubes and boxes of the small ones. Prints each failure with what
/// reproduces it, and at last "N passed, N failed". Returns the exit status.
int verify(const FftOptions& options);

}  // namespace convolume::bench
