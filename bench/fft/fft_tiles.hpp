// Transforms of the tiles of a volume as a tiled convolution makes them, without the product between.
#pragma once

#include "bench/fft/fft_options.hpp"

namespace convolume::bench {

/// Prints a table with six lines for each extent in options.sizes, forward, inverse of the valid part and inverse of
/// the full tile, once with spectra of three tiles at a time and once with those of all kept, and writes options.json.
/// Returns the exit status.
int tiles(const FftOptions& options);

}  // namespace convolume::bench
