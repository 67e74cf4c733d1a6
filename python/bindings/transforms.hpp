// Fourier transforms of NumPy arrays.
#pragma once

#include <nanobind/nanobind.h>

namespace convolume::python {

/// Adds transform() and good_size() to the module.
void add_transforms(nanobind::module_& module);

}  // namespace convolume::python
