// Depthwise convolutions, by tiles in the frequency domain and by sums over taps. A lane never meets another lane, so
// neither way needs a sum over channels.
#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

/// The implementation for Engine::fft_tiled.
Implementation fft_depthwise_implementation();
/// The implementation for Engine::direct.
Implementation direct_depthwise_implementation();

}  // namespace convolume::conv
