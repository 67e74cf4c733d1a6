// Fourier transforms of NumPy arrays.
#pragma once

#include <nanobind/nanobind.h>

namespace convolume::python {

/// Adds transform(), TransformPlan, and what both need to the module.
void add_transforms(nanobind::module_& module);

}  // namespace convolume::python
