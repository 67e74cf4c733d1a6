#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

/// Returns the implementation of dense convolutions with kernel 3 by Toom-Cook.
Implementation toom_cook_implementation();

}  // namespace convolume::conv
