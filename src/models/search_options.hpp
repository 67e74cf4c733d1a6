// What both searches share.
#pragma once

#include "convolume/energy.hpp"

namespace convolume::plan {

/// Energies are equal if their relative difference is smaller.
constexpr double equal_pj = 1e-9;

/// Throws InvalidArgument that names the option, its value and the valid ones.
void check(const SearchOptions& options);

}  // namespace convolume::plan
