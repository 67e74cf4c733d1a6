#include "python/bindings/transforms.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings/arrays.hpp"
#include "python/bindings/runtime.hpp"
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "convolume/error.hpp"
#include "convolume/fft.hpp"

namespace convolume::python {
namespace {

/// An array of real or complex numbers.
class Buffer {
 public:
  Buffer(nb::handle array, bool writable)
      : held_(array, PyBUF_FORMAT | PyBUF_STRIDES | (writable ? PyBUF_WRITABLE : 0)) {}

  void* data() const { return held_->buf; }
  index_t bytes() const { return held_->len; }
  std::string format() const { return held_.format(); }
  /// Returns the type of the numbers, or of the parts of complex numbers.
  DataType type() const {
    const std::string format = this->format();
    if (format == "f" || format == "Zf") return DataType::f32;
    if (format == "d" || format == "Zd") return DataType::f64;
    throw nb::type_error(("an array of transforms has the format '" + format +
                          "'; use float32, float64, complex64 or "
                          "complex128 in this machine's byte order")
                             .c_str());
  }
  std::vector<index_t> shape() const { return {held_->shape, held_->shape + held_->ndim}; }
  /// Returns the strides in elements.
  std::vector<index_t> strides() const {
    std::vector<index_t> all(held_->strides, held_->strides + held_->ndim);
    for (index_t& stride : all) stride /= held_->itemsize;
    return all;
  }
  bool dense() const { return PyBuffer_IsContiguous(&*held_, 'C') != 0; }
  /// Returns whether the memory between the first and the last element of both has a byte in common.
  bool meets(const Buffer& other) const {
    const auto [begin, end] = held_.bounds();
    const auto [first, last] = other.held_.bounds();
    return first < end && begin < last;
  }

 private:
  HeldBuffer held_;
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

/// Work that several threads do no faster than one.
constexpr double least_flops_to_share = 1e6;
constexpr index_t least_bytes_to_share = 1 << 18;

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

/// Multiplies numbers by a factor.
template <class T>
void multiply(T* numbers, index_t count, T factor, Scheduler& scheduler, int workers) {
  const auto body = [=](index_t begin, index_t end, int) {
    for (index_t i = begin; i < end; ++i) numbers[i] *= factor;
  };
  if (workers == 1) return body(0, count, 0);
  run_ranges(scheduler, workers, count, body);
}

/// Multiplies a dense array in place.
void multiply(DataType type, const Buffer& numbers, double factor, Scheduler& scheduler) {
  if (factor == 1) return;
  const int workers = numbers.bytes() < least_bytes_to_share ? 1 : scheduler.threads();
  const auto count = numbers.bytes() / static_cast<index_t>(size_of(type));
  if (type == DataType::f32) {
    multiply(static_cast<float*>(numbers.data()), count, static_cast<float>(factor), scheduler, workers);
  } else {
    multiply(static_cast<double*>(numbers.data()), count, factor, scheduler, workers);
  }
}

bool is_forward(fft::Kind kind) { return kind == fft::Kind::r2c || kind == fft::Kind::c2c_forward; }
bool has_real_space(fft::Kind kind) { return kind == fft::Kind::r2c || kind == fft::Kind::c2r; }
/// Return the format of the numbers on each side.
const char* spectrum_format(bool single) { return single ? "Zf" : "Zd"; }
const char* space_format(fft::Kind kind, bool single) {
  if (has_real_space(kind)) return single ? "f" : "d";
  return spectrum_format(single);
}

/// An axis that is not transformed: its extent, and its strides on both sides, in elements.
struct Loop {
  index_t count, space, spectrum;
};

/// The arrays of one side: extents and strides, in elements.
struct Side {
  std::vector<index_t> extent, stride;
};

/// A transform along at most three axes of arrays with any number of axes: a problem, and axes that are looped over.
/// Immutable.
class Strided {
 public:
  /// The fastest of the transformed axes is the last. All strides are positive, and no two elements share memory.
  Strided(fft::Kind kind, DataType type, const Side& space, const Side& spectrum, const std::vector<int>& axes)
      : forward_(is_forward(kind)) {
    const bool real = kind == fft::Kind::r2c || kind == fft::Kind::c2r;
    spectrum_bytes_ = 2 * static_cast<index_t>(size_of(type));
    space_bytes_ = real ? spectrum_bytes_ / 2 : spectrum_bytes_;
    fft::Problem problem{.type = type, .kind = kind, .extent = {1, 1, 1}, .unaligned = true};
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const int to = static_cast<int>(3 - axes.size() + i);
      const auto axis = static_cast<std::size_t>(axes[i]);
      problem.extent[to] = space.extent[axis];
      problem.space_stride[to] = space.extent[axis] > 1 ? space.stride[axis] : 0;
      problem.spectrum_stride[to] = spectrum.extent[axis] > 1 ? spectrum.stride[axis] : 0;
    }
    // Neighbouring axes that are not transformed count as one if their strides nest.
    for (std::size_t axis = 0; axis < space.extent.size(); ++axis) {
      if (space.extent[axis] == 1 || std::find(axes.begin(), axes.end(), static_cast<int>(axis)) != axes.end())
        continue;
      const Loop loop{space.extent[axis], space.stride[axis], spectrum.stride[axis]};
      if (!loops_.empty() && loops_.back().space == loop.space * loop.count &&
          loops_.back().spectrum == loop.spectrum * loop.count) {
        loops_.back() = {loops_.back().count * loop.count, loop.space, loop.spectrum};
      } else {
        loops_.push_back(loop);
      }
    }
    // The longest of them is the batch. The others are looped over.
    if (!loops_.empty()) {
      const auto longest = std::max_element(loops_.begin(), loops_.end(),
                                            [](const Loop& a, const Loop& b) { return a.count < b.count; });
      problem.batch = std::max<index_t>(1, longest->count);
      problem.space_distance = longest->space;
      problem.spectrum_distance = longest->spectrum;
      loops_.erase(longest);
    }
    plan_.emplace(fft::Plan::make(problem));
  }

  const fft::Plan& plan() const { return *plan_; }
  /// Returns the nominal operations of all volumes.
  double flops() const {
    double volumes = static_cast<double>(plan_->problem().batch);
    for (const Loop& loop : loops_) volumes *= static_cast<double>(loop.count);
    return volumes * plan_->flops();
  }

  void run(const void* in, void* out, Scheduler& scheduler) const {
    const double flops_of_a_loop = plan_->flops() * static_cast<double>(plan_->problem().batch);
    const int workers = flops_of_a_loop < least_flops_to_share ? 1 : scheduler.threads();
    const Scratch scratch(plan_->scratch_bytes(workers));
    const auto* const source = static_cast<const std::byte*>(in);
    auto* const target = static_cast<std::byte*>(out);
    std::vector<index_t> at(loops_.size());
    for (bool more = true; more;) {
      index_t space = 0, spectrum = 0;
      for (std::size_t i = 0; i < at.size(); ++i) {
        space += at[i] * loops_[i].space * space_bytes_;
        spectrum += at[i] * loops_[i].spectrum * spectrum_bytes_;
      }
      const void* const from = source + (forward_ ? space : spectrum);
      void* const to = target + (forward_ ? spectrum : space);
      if (workers == 1) {
        plan_->execute(from, to, scratch.data());
      } else {
        plan_->execute(from, to, scratch.data(), workers,
                       [&](index_t items, const fft::RangeBody& body) { run_ranges(scheduler, workers, items, body); });
      }
      more = false;
      for (std::size_t i = at.size(); i-- > 0 && !more;) {
        more = ++at[i] < loops_[i].count;
        if (!more) at[i] = 0;
      }
    }
  }

 private:
  bool forward_;
  index_t space_bytes_ = 0, spectrum_bytes_ = 0;  ///< of an element
  std::vector<Loop> loops_{};
  std::optional<fft::Plan> plan_{};
};

/// Transforms x to y along at most three axes, the fastest last. All strides are positive, and no two elements share
/// memory.
void transform(nb::handle x, nb::handle y, int kind, const std::vector<int>& axes, int workers) {
  const Buffer in(x, false), out(y, true);
  if (in.bytes() == 0 || out.bytes() == 0) return;
  const auto which = static_cast<fft::Kind>(kind);
  const Buffer &space = is_forward(which) ? in : out, &spectrum = is_forward(which) ? out : in;
  const bool single = in.type() == DataType::f32;
  if (space.format() != space_format(which, single) || spectrum.format() != spectrum_format(single)) {
    throw nb::type_error(("a transform from the format '" + in.format() + "' to '" + out.format() +
                          "'; use arrays of one precision, real or complex as the transform needs")
                             .c_str());
  }
  Scheduler& scheduler = Runtime::get().scheduler(workers);
  Runtime::get().counters().calls.fetch_add(1, std::memory_order_relaxed);
  const Computation computation;
  Strided(which, in.type(), {space.shape(), space.strides()}, {spectrum.shape(), spectrum.strides()}, axes)
      .run(in.data(), out.data(), scheduler);
}

/// Multiplies a dense array in place.
void scale(nb::handle y, double factor, int workers) {
  const Buffer out(y, true);
  Scheduler& scheduler = Runtime::get().scheduler(workers);
  const Computation computation;
  multiply(out.type(), out, factor, scheduler);
}

std::string text_of(const std::vector<index_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

/// Returns the strides of a dense array, in elements.
std::vector<index_t> strides_of(const std::vector<index_t>& shape) {
  std::vector<index_t> stride(shape.size());
  index_t next = 1;
  for (std::size_t i = shape.size(); i-- > 0; next *= shape[i]) stride[i] = next;
  return stride;
}

/// A transform of dense arrays of one shape, along at most three axes. Immutable.
class DensePlan {
 public:
  /// `shape` is that of the space side. Package code has checked all arguments.
  DensePlan(fft::Kind kind, DataType type, const std::vector<index_t>& shape, const std::vector<int>& axes,
            double factor, int workers)
      : kind_(kind), type_(type), shape_(shape), half_(shape), factor_(factor), workers_(workers) {
    const auto last = static_cast<std::size_t>(axes.back());
    if (real_space()) half_[last] = shape_[last] / 2 + 1;
    strided_.emplace(kind, type, Side{shape_, strides_of(shape_)}, Side{half_, strides_of(half_)}, axes);
  }

  bool forward() const { return is_forward(kind_); }
  bool real_space() const { return has_real_space(kind_); }
  const std::vector<index_t>& x_shape() const { return forward() ? shape_ : half_; }
  const std::vector<index_t>& y_shape() const { return forward() ? half_ : shape_; }
  double flops() const { return strided_->flops(); }
  std::string numerics() const { return strided_->plan().describe(); }

  nb::object call(nb::handle x, nb::handle out) const {
    nb::object source = array_of("x", x);
    std::optional<Buffer> in;
    in.emplace(source, false);
    check("x", source, *in, x_shape(), x_format());
    nb::object result;
    if (out.is_none()) {
      result = new_array(type_, {y_shape().begin(), y_shape().end()}, y_format()[0] == 'Z');
    } else {
      result = array_of("out", out);
    }
    const Buffer target = output_buffer(result);
    if (!out.is_none()) {
      check("out", result, target, y_shape(), y_format());
      if (!target.dense()) throw InvalidArgument("out is not C-contiguous; pass an array that is");
      if (target.meets(*in) && nb::cast<bool>(numpy("shares_memory")(result, source))) {
        throw InvalidArgument("out overlaps x; pass another array");
      }
    }
    Runtime::Counters& counters = Runtime::get().counters();
    if (!in->dense()) {
      counters.copies.fetch_add(1, std::memory_order_relaxed);
      counters.copied_bytes.fetch_add(in->bytes(), std::memory_order_relaxed);
      source = numpy("ascontiguousarray")(source);
      in.emplace(source, false);
    }
    if (in->bytes() == 0 || target.bytes() == 0) return result;
    Scheduler& scheduler = Runtime::get().scheduler(workers_);
    counters.calls.fetch_add(1, std::memory_order_relaxed);
    const Computation computation;
    strided_->run(in->data(), target.data(), scheduler);
    multiply(type_, target, factor_, scheduler);
    return result;
  }

 private:
  bool single() const { return type_ == DataType::f32; }
  const char* x_format() const { return forward() ? space_format(kind_, single()) : spectrum_format(single()); }
  const char* y_format() const { return forward() ? spectrum_format(single()) : space_format(kind_, single()); }

  static const char* dtype_of(const std::string& format) {
    if (format == "f") return "float32";
    if (format == "d") return "float64";
    return format == "Zf" ? "complex64" : "complex128";
  }
  static nb::object numpy(const char* function) { return nb::module_::import_("numpy").attr(function); }
  /// Returns an object that has a buffer.
  static nb::object array_of(const char* name, nb::handle value) {
    if (PyObject_CheckBuffer(value.ptr()) != 0) return nb::borrow(value);
    return nb::module_::import_("convolume._convolution").attr("_array")(name, value);
  }
  static Buffer output_buffer(const nb::object& array) {
    try {
      return Buffer(array, true);
    } catch (const nb::python_error& error) {
      throw InvalidArgument(std::string("out cannot be written (") + error.what() + "); pass an array that can");
    }
  }
  static void check(const char* name, const nb::object& array, const Buffer& buffer, const std::vector<index_t>& shape,
                    const char* format) {
    if (buffer.format() != format) {
      const nb::object dtype = nb::getattr(array, "dtype", nb::str(buffer.format().c_str()));
      const std::string message = std::string(name) + " has dtype " + nb::cast<std::string>(nb::str(dtype)) +
                                  "; the plan needs " + dtype_of(format) + " in this machine's byte order: use " +
                                  name + ".astype('" + dtype_of(format) + "'), or make a plan with that dtype";
      throw nb::type_error(message.c_str());
    }
    if (buffer.shape() != shape) {
      throw ShapeMismatch(std::string(name) + " has shape " + text_of(buffer.shape()) + "; the plan needs " +
                          text_of(shape) + ": pass such an array, or make a plan for this one");
    }
  }

  fft::Kind kind_;
  DataType type_;
  std::vector<index_t> shape_, half_;  ///< of the space side and of the spectrum side
  double factor_;
  int workers_;
  std::optional<Strided> strided_{};
};

}  // namespace

void add_transforms(nb::module_& m) {
  m.def("transform", transform, nb::arg("x"), nb::arg("y"), nb::arg("kind"), nb::arg("axes"), nb::arg("workers"));
  m.def("scale", scale, nb::arg("y"), nb::arg("factor"), nb::arg("workers"));
  m.def(
      "empty",
      [](const std::vector<std::size_t>& shape, bool single, bool complex_numbers) {
        return new_array(single ? DataType::f32 : DataType::f64, shape, complex_numbers);
      },
      nb::arg("shape"), nb::arg("single"), nb::arg("complex_numbers"));
  m.def("good_size", fft::good_size, nb::arg("n"));
  nb::class_<DensePlan>(m, "TransformPlan")
      .def("__init__",
           [](DensePlan* self, int kind, bool single, const std::vector<index_t>& shape, const std::vector<int>& axes,
              double factor, int workers) {
             const Computation computation;
             new (self) DensePlan(static_cast<fft::Kind>(kind), single ? DataType::f32 : DataType::f64, shape, axes,
                                  factor, workers);
           })
      .def("__call__", &DensePlan::call, nb::arg("x").none(), nb::arg("out") = nb::none())
      .def_prop_ro("x_shape", [](const DensePlan& plan) { return nb::tuple(nb::cast(plan.x_shape())); })
      .def_prop_ro("y_shape", [](const DensePlan& plan) { return nb::tuple(nb::cast(plan.y_shape())); })
      .def_prop_ro("flops", &DensePlan::flops)
      .def_prop_ro("numerics", &DensePlan::numerics);
}

}  // namespace convolume::python
