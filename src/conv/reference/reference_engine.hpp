// Plain loops in double precision. Slow and simple. Serves every problem in plain layouts.
#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

Implementation reference_implementation();

}  // namespace convolume::conv
