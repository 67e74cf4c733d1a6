// Plans of convolutions as Python sees them.
#pragma once

#include <memory>

#include "python/bindings/arrays.hpp"

#include "convolume/conv.hpp"

namespace convolume::python {

/// Adds ConvPlan, PreparedWeights and Spectra to the module.
void add_plans(nb::module_& module);

}  // namespace convolume::python
