// Times the transforms of the tiles of a volume as a tiled convolution needs them, without the product in between.
#pragma once

#include "bench/fft/fft_options.hpp"

namespace convolume::bench {

/// Prints a table with six lines for each extent in options.sizes, and writes options.json. The lines are forward,
/// inverse of the valid part, and inverse of the full tile. Each is measured with the spectra of three tiles in memory,
/// and with the spectra of all tiles. Returns the exit status.
int tiles(const FftOptions& options);

}  // namespace convolume::bench
