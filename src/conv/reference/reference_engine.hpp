// Plain loops in double precision: slow and obvious. Serves every problem in plain layout.
#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

Implementation reference_implementation();

}  // namespace convolume::conv
