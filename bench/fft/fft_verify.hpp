// Compares every kind, order, precision and instruction set of the native transforms with a reference.
#pragma once

#include "bench/fft/fft_options.hpp"

namespace convolume::bench {

/// Checks lines of every length in options.sizes, and cubes and boxes of the small lengths. Prints each failure with
/// the command that reproduces it, and at the end "N passed, N failed". Returns the exit status.
int verify(const FftOptions& options);

}  // namespace convolume::bench
