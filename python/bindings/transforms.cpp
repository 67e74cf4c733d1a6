#include "python/bindings/transforms.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "python/bindings/runtime.hpp"
#include <Python.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "convolume/error.hpp"
#include "convolume/fft.hpp"

namespace convolume::python {
namespace {

namespace nb = nanobind;

/// The buffer of an array, which package code has checked. Created and destroyed with the GIL.
class Buffer {
 public:
  Buffer(nb::handle array, bool writable) {
    const int flags = PyBUF_FORMAT | PyBUF_STRIDES | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(array.ptr(), &view_, flags) != 0) nb::raise_python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return view_.buf; }
  int axes() const { return view_.ndim; }
  index_t extent(int axis) const { return view_.shape[axis]; }
  index_t stride(int axis) const { return view_.strides[axis] / view_.itemsize; }
  DataType type() const {
    const std::string format = view_.format;
    return format == "f" || format == "Zf" ? DataType::f32 : DataType::f64;
  }
  bool aligned() const { return reinterpret_cast<std::uintptr_t>(view_.buf) % 64 == 0; }

 private:
  Py_buffer view_{};
};

/// Scratch from the memory of results.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes)
      : bytes_(std::max<std::size_t>(bytes, 64)), data_(Runtime::get().memory().allocate(bytes_, 64)) {}
  ~Scratch() { Runtime::get().memory().deallocate(data_, bytes_, 64); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

/// Runs body over ranges of items, one task for each worker.
void run_ranges(Scheduler& scheduler, int workers, index_t items, const fft::RangeBody& body) {
  TaskGraph graph;
  const index_t ranges = std::min<index_t>(workers, items);
  for (index_t i = 0; i < ranges; ++i) {
    const index_t begin = items * i / ranges, end = items * (i + 1) / ranges;
    graph.add({.name = "transforms"}, [&body, begin, end, i] { body(begin, end, static_cast<int>(i)); });
  }
  graph.run(scheduler);
}

/// Transforms x to y along the axes, the fastest last. The arrays have at most one axis more than these, `batch`, or
/// -1. All strides are positive, and no two elements share memory.
void transform(nb::handle x, nb::handle y, int kind, const std::vector<int>& axes, int batch, int workers) {
  const Buffer in(x, false), out(y, true);
  const auto which = static_cast<fft::Kind>(kind);
  const bool forward = which == fft::Kind::r2c || which == fft::Kind::c2c_forward;
  const Buffer &space = forward ? in : out, &spectrum = forward ? out : in;
  fft::Problem problem{.type = in.type(), .kind = which, .extent = {1, 1, 1}};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const int to = static_cast<int>(3 - axes.size() + i);
    problem.extent[to] = space.extent(axes[i]);
    problem.space_stride[to] = space.extent(axes[i]) > 1 ? space.stride(axes[i]) : 0;
    problem.spectrum_stride[to] = spectrum.extent(axes[i]) > 1 ? spectrum.stride(axes[i]) : 0;
  }
  if (batch >= 0) {
    problem.batch = in.extent(batch);
    problem.space_distance = problem.batch > 1 ? space.stride(batch) : 0;
    problem.spectrum_distance = problem.batch > 1 ? spectrum.stride(batch) : 0;
  }
  problem.unaligned = !in.aligned() || !out.aligned();
  Scheduler& scheduler = Runtime::get().scheduler(workers);
  Runtime::get().counters().calls.fetch_add(1, std::memory_order_relaxed);
  const Computation computation;
  const fft::Plan plan = fft::Plan::make(problem);
  const int count = scheduler.threads();
  const Scratch scratch(plan.scratch_bytes(count));
  if (count == 1) return plan.execute(in.data(), out.data(), scratch.data());
  plan.execute(in.data(), out.data(), scratch.data(), count,
               [&](index_t items, const fft::RangeBody& body) { run_ranges(scheduler, count, items, body); });
}

}  // namespace

void add_transforms(nb::module_& m) {
  m.def("transform", transform, nb::arg("x"), nb::arg("y"), nb::arg("kind"), nb::arg("axes"), nb::arg("batch"),
        nb::arg("workers"));
  m.def("good_size", fft::good_size, nb::arg("n"));
}

}  // namespace convolume::python
