// The exceptions of the library as classes of Python.
#pragma once

#include <nanobind/nanobind.h>

namespace convolume::python {

/// Adds a class for each exception of the library. Each is also the usual built-in class, for example ValueError.
void add_errors(nanobind::module_& module);

}  // namespace convolume::python
