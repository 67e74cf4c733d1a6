#include "python/bindings/errors.hpp"

#include <string>

#include <Python.h>

#include "convolume/error.hpp"

namespace convolume::python {
namespace {

namespace nb = nanobind;

/// The classes of Python. They live until the process ends.
struct Classes {
  PyObject *error, *invalid_argument, *shape_mismatch, *overflow, *unsupported, *io, *format, *config, *numerical,
      *stale_cache, *memory_budget;
};
Classes classes;

PyObject* add(nb::module_& module, const char* name, PyObject* built_in) {
  const std::string full = std::string("convolume.") + name;
  PyObject* const bases =
      classes.error == nullptr ? PyTuple_Pack(1, built_in) : PyTuple_Pack(2, classes.error, built_in);
  if (bases == nullptr) nb::raise_python_error();
  PyObject* const made = PyErr_NewException(full.c_str(), bases, nullptr);
  Py_DECREF(bases);
  if (made == nullptr) nb::raise_python_error();
  module.attr(name) = nb::handle(made);
  return made;
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const InvalidArgument& error) {
    PyErr_SetString(classes.invalid_argument, error.what());
  } catch (const ShapeMismatch& error) {
    PyErr_SetString(classes.shape_mismatch, error.what());
  } catch (const OverflowError& error) {
    PyErr_SetString(classes.overflow, error.what());
  } catch (const Unsupported& error) {
    PyErr_SetString(classes.unsupported, error.what());
  } catch (const IoError& error) {
    PyErr_SetString(classes.io, error.what());
  } catch (const FormatError& error) {
    PyErr_SetString(classes.format, error.what());
  } catch (const ConfigError& error) {
    PyErr_SetString(classes.config, error.what());
  } catch (const NumericalError& error) {
    PyErr_SetString(classes.numerical, error.what());
  } catch (const StaleCache& error) {
    PyErr_SetString(classes.stale_cache, error.what());
  } catch (const MemoryBudgetExceeded& error) {
    PyErr_SetString(classes.memory_budget, error.what());
  } catch (const Error& error) {
    PyErr_SetString(classes.error, error.what());
  }
}

}  // namespace

void add_errors(nb::module_& m) {
  classes.error = add(m, "Error", PyExc_Exception);
  classes.invalid_argument = add(m, "InvalidArgument", PyExc_ValueError);
  classes.shape_mismatch = add(m, "ShapeMismatch", PyExc_ValueError);
  classes.overflow = add(m, "OverflowError", PyExc_OverflowError);
  classes.unsupported = add(m, "Unsupported", PyExc_NotImplementedError);
  classes.io = add(m, "IoError", PyExc_OSError);
  classes.format = add(m, "FormatError", PyExc_ValueError);
  classes.config = add(m, "ConfigError", PyExc_ValueError);
  classes.numerical = add(m, "NumericalError", PyExc_ArithmeticError);
  classes.stale_cache = add(m, "StaleCache", PyExc_RuntimeError);
  classes.memory_budget = add(m, "MemoryBudgetExceeded", PyExc_MemoryError);
  nb::register_exception_translator(translate);
}

}  // namespace convolume::python
