// Long computations that Ctrl-C ends, and callbacks of Python that they make.
#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <semaphore>
#include <stop_token>
#include <thread>
#include <utility>

#include "python/bindings/runtime.hpp"
#include <nanobind/nanobind.h>

namespace convolume::python {

/// A computation in a thread of its own, while the calling thread waits for signals. A signal whose handler raises an
/// exception, or a callback that raises one, requests a stop; the exception is raised when the computation has ended.
class Interruptible {
 public:
  std::stop_token stop() const { return stop_.get_token(); }

  /// Calls a function of Python, from the computation. Nothing is called after an exception.
  template <class... Arguments>
  void call(nb::handle function, Arguments&&... arguments) {
    const nb::gil_scoped_acquire acquire;
    if (raised_) return;
    try {
      function(std::forward<Arguments>(arguments)...);
    } catch (nb::python_error& error) {
      raise(std::move(error));
    } catch (const std::exception& error) {  // an argument that Python cannot have
      PyErr_SetString(PyExc_RuntimeError, error.what());
      raise(nb::python_error());
    }
  }

  /// Runs body(), and returns when it has ended. The caller has the GIL. Throws what was raised, or what body() throws.
  template <class Body>
  auto run(const Body& body) {
    std::optional<decltype(body())> result;
    std::exception_ptr error;
    {
      const Computation computation;
      std::binary_semaphore ended(0);
      std::thread worker([&] {
        try {
          result.emplace(body());
        } catch (...) {
          error = std::current_exception();
        }
        ended.release();
      });
      // Python calls handlers of signals only in its main thread, and only while that runs Python.
      while (!ended.try_acquire_for(std::chrono::milliseconds(50))) check_signals();
      worker.join();
    }
    if (raised_) throw std::move(*raised_);
    if (error) std::rethrow_exception(error);
    return std::move(*result);
  }

 private:
  void check_signals() {
    if (Computation::refused()) stop_.request_stop();
    const nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() == 0) return;
    nb::python_error error;
    if (!raised_) raise(std::move(error));
  }
  /// The caller has the GIL.
  void raise(nb::python_error error) {
    raised_.emplace(std::move(error));
    stop_.request_stop();
  }

  std::stop_source stop_;
  std::optional<nb::python_error> raised_;  // guarded by the GIL
};

}  // namespace convolume::python
