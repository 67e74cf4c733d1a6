// The iterative search, for callers that have a model already.
#pragma once

#include <vector>

#include "models/energy_model.hpp"

namespace convolume::plan {

/// Returns the nests that search_iterative() keeps, the best first, at most as many as there are seeds. Adds the number
/// of nests that were evaluated to `tried`. Throws InvalidArgument for options out of range.
std::vector<BlockLoops> iterative_nests(const EnergyModel& model, const SearchOptions& search, double* tried);

}  // namespace convolume::plan
