// Convolution of tiles in the frequency domain (overlap-save). Channels are the lanes of vectors, and there is one
// complex matrix product per frequency (Zlateski, Jia, Li, Durand 2018). Serves most layers.
#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

Implementation fft_tiled_implementation();

}  // namespace convolume::conv
