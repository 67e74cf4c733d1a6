// Convolution of whole volumes in the frequency domain, as in ZNN (Feinberg 2015): spectra are cached, and sums over
// channels are computed in the frequency domain. Serves huge kernels and few channels, on plain tensors.
#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

Implementation fft_volume_implementation();

}  // namespace convolume::conv
