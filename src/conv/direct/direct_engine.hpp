// Sums over taps around a microkernel that is blocked for registers; any stride and dilation. Serves kernels of one
// voxel, strides and small deep layers.
#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

Implementation direct_implementation();

}  // namespace convolume::conv
