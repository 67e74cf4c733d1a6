// Nets: training, inference, evaluation and description, on files and on arrays.
#pragma once

#include <nanobind/nanobind.h>

namespace convolume::python {

void add_nets(nanobind::module_& module);

}  // namespace convolume::python
