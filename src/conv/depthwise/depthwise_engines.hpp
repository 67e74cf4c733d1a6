// Implementations for depthwise convolutions: by tiles in the frequency domain, and by sums over taps. Each lane is a
// channel that is never added to another channel. So neither implementation needs a sum over channels.
#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

/// Returns the implementation for Engine::fft_tiled.
Implementation fft_depthwise_implementation();
/// Returns the implementation for Engine::direct.
Implementation direct_depthwise_implementation();

}  // namespace convolume::conv
