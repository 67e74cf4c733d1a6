// What both searches check.
#pragma once

#include "convolume/energy.hpp"

namespace convolume::plan {

/// Throws InvalidArgument that names the option, its value and the valid ones.
void check(const SearchOptions& options);

}  // namespace convolume::plan
