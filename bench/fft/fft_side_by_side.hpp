// Times cubes of many sizes with this library and FFTW, in turn in one process. The result is the ratio of the times.
#pragma once

#include "bench/fft/fft_options.hpp"

namespace convolume::bench {

/// Prints a table and the geometric means, and writes options.json. Returns the exit status. Throws the exceptions of
/// planning. A size that an algorithm does not support is left out, with a message.
int side_by_side(const FftOptions& options);

}  // namespace convolume::bench
