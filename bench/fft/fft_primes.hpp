// The algorithms for prime lengths against each other, and how well the cost model chooses among them.
#pragma once

#include "bench/fft/fft_options.hpp"

namespace convolume::bench {

/// Prints a table with a line per prime in options.sizes and how often the model's choice is within 5 % of the best,
/// and writes options.json. Returns the exit status.
int primes(const FftOptions& options);

}  // namespace convolume::bench
