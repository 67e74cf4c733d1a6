// Sums over taps, computed by a microkernel that keeps a block of sums in registers. Serves any stride and dilation.
// Suits kernels of one voxel, strides, and small deep layers.
#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

Implementation direct_implementation();

}  // namespace convolume::conv
