// Compares the algorithms for prime lengths, and checks how well the cost model selects among them.
#pragma once

#include "bench/fft/fft_options.hpp"

namespace convolume::bench {

/// Prints a table with one line per prime in options.sizes, and how often the model's choice is within 5 % of the best.
/// Writes options.json. Returns the exit status.
int primes(const FftOptions& options);

}  // namespace convolume::bench
