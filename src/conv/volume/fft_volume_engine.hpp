// Whole volumes in the frequency domain, ZNN's way (Feinberg 2015): cached spectra, sums over channels in the frequency
// domain. Serves huge kernels and few channels, on plain tensors.
#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

Implementation fft_volume_implementation();

}  // namespace convolume::conv
