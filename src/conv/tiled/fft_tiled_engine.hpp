// Tiles in the frequency domain (overlap-save), channels in the lanes of vectors, one complex matrix product per
// frequency (Zlateski, Jia, Li, Durand 2018). Serves most layers.
#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

Implementation fft_tiled_implementation();

}  // namespace convolume::conv
