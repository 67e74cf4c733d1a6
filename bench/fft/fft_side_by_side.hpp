// Cubes of many sizes, this library and FFTW in turn in one process: the ratio of their times is what is claimed.
#pragma once

#include "bench/fft/fft_options.hpp"

namespace convolume::bench {

/// Prints a table and the geometric means, and writes options.json. Returns the exit status. Throws what planning
/// throws, except that a size that the algorithm does not serve is left out, with a word.
int side_by_side(const FftOptions& options);

}  // namespace convolume::bench
