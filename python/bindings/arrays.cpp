#include "python/bindings/arrays.hpp"

#include <algorithm>
#include <complex>
#include <memory>
#include <utility>

#include "python/bindings/runtime.hpp"
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "convolume/error.hpp"

namespace convolume::python {
namespace {

nb::object numpy(const char* function) { return nb::module_::import_("numpy").attr(function); }

std::string text_of(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

/// Returns float32 or float64 by the format of a buffer. Other byte orders than this machine's are refused.
DataType type_of(const char* name, const HeldBuffer& buffer) {
  const std::string format = buffer.format();
  if (format == "f") return DataType::f32;
  if (format == "d") return DataType::f64;
  const nb::object dtype = nb::getattr(nb::borrow(buffer->obj), "dtype", nb::str(format.c_str()));
  const std::string message = std::string(name) + " has dtype " + text_of(dtype) +
                              "; use float32 or float64 in this machine's byte order, for example " + name +
                              ".astype('float32')";
  throw nb::type_error(message.c_str());
}

bool rows_are_contiguous(const Py_buffer& buffer) {
  const int last = buffer.ndim - 1;
  for (int axis = 0; axis < buffer.ndim; ++axis) {
    if (buffer.shape[axis] > 1 && buffer.strides[axis] % buffer.itemsize != 0) return false;
  }
  return buffer.shape[last] <= 1 || buffer.strides[last] == buffer.itemsize;
}

index_t elements(const Py_buffer& buffer) {
  index_t count = 1;
  for (int axis = 0; axis < buffer.ndim; ++axis) count *= buffer.shape[axis];
  return count;
}

HeldBuffer buffer_of(const char* name, nb::handle array, Array::Use use) {
  const bool written = use == Array::Use::output;
  try {
    return {array, PyBUF_FORMAT | PyBUF_STRIDES | (written ? PyBUF_WRITABLE : 0)};
  } catch (const nb::python_error& error) {
    if (written && PyObject_CheckBuffer(array.ptr()) != 0) {
      throw InvalidArgument(std::string(name) + " cannot be written (" + error.what() + "); pass an array that can");
    }
  }
  throw nb::type_error((std::string(name) + " is no array: " + text_of(array.type()) + "; use numpy.asarray").c_str());
}

}  // namespace

Array::Array(const char* name, nb::handle array, Use use, int least_axes, int most_axes)
    : buffer_(buffer_of(name, array, use)), name_(name), type_(type_of(name, buffer_)) {
  if (buffer_->ndim < least_axes || buffer_->ndim > most_axes) {
    const std::string wanted = least_axes == most_axes
                                   ? std::to_string(least_axes)
                                   : std::to_string(least_axes) + " or " + std::to_string(most_axes);
    throw InvalidArgument(std::string(name) + " has " + std::to_string(buffer_->ndim) + " axes; it must have " +
                          wanted);
  }
  if (rows_are_contiguous(*buffer_)) return;
  if (use == Use::output) {
    throw InvalidArgument(std::string(name) +
                          ": voxels along the last axis are not side by side; pass an array whose rows are contiguous");
  }
  auto& counters = Runtime::get().counters();
  counters.copies.fetch_add(1, std::memory_order_relaxed);
  counters.copied_bytes.fetch_add(elements(*buffer_) * buffer_->itemsize, std::memory_order_relaxed);
  buffer_ = buffer_of(name, numpy("ascontiguousarray")(array), use);
}

index_t Array::stride(int axis) const noexcept { return buffer_->strides[axis] / buffer_->itemsize; }

TensorView tensor_at(void* data, DataType type, const Shape5& shape, std::span<const index_t> stride) {
  const std::array<index_t, 5> extents{shape.n, shape.c, shape.extent.z, shape.extent.y, shape.extent.x};
  const std::size_t missing = extents.size() - stride.size();
  std::array<index_t, 5> all{};
  index_t dense = 1;
  for (std::size_t axis = extents.size(); axis-- > 0;) {
    // NumPy and PyTorch give axes of length 1 any stride.
    all[axis] = axis < missing || extents[axis] <= 1 ? dense : stride[axis - missing];
    dense = std::max(dense, std::abs(all[axis]) * std::max<index_t>(1, extents[axis]));
  }
  return {Address<void>(data), type, shape, all};
}

TensorView Array::tensor() const {
  Shape5 shape{1, 1, {1, 1, 1}};
  std::array<index_t, 5> strides{};
  const auto last = static_cast<std::size_t>(axes());
  for (int axis = 0; axis < axes(); ++axis) strides[static_cast<std::size_t>(axis)] = stride(axis);
  const int missing = 5 - axes();
  shape.n = missing > 0 ? 1 : extent(0);
  shape.c = extent(1 - missing);
  shape.extent = {extent(2 - missing), extent(3 - missing), extent(4 - missing)};
  return tensor_at(buffer_->buf, type_, shape, std::span(strides).first(last));
}

TensorView Array::channels() const {
  const index_t count = extent(0);
  return {Address<void>(buffer_->buf), type_, {1, count, {1, 1, 1}}, {count, 1, 1, 1, 1}};
}

void Array::require_distinct_elements() const {
  std::vector<std::pair<index_t, index_t>> order;  // stride and extent, the smallest stride first
  for (int axis = 0; axis < axes(); ++axis) {
    if (extent(axis) > 1) order.emplace_back(std::abs(stride(axis)), extent(axis));
  }
  std::sort(order.begin(), order.end());
  index_t reach = 0;
  for (const auto& [step, count] : order) {
    if (step <= reach) {
      throw InvalidArgument(std::string(name_) + ": elements share memory; pass an array with distinct elements");
    }
    reach += step * (count - 1);
  }
}

void require_disjoint(const Array& output, std::initializer_list<const Array*> inputs) {
  if (!output) return;
  const auto [begin, end] = output.bounds();
  for (const Array* input : inputs) {
    if (!*input) continue;
    const auto [first, last] = input->bounds();
    if (last <= begin || end <= first) continue;
    // The boxes of both overlap. Whether any element does takes longer to find out.
    if (!nb::cast<bool>(numpy("shares_memory")(output.object(), input->object()))) continue;
    throw InvalidArgument(std::string(output.name()) + " overlaps " + input->name() + "; pass another array");
  }
}

nb::object new_array(DataType type, const std::vector<std::size_t>& shape, bool complex_numbers) {
  std::size_t bytes = size_of(type) * (complex_numbers ? 2 : 1);
  for (const std::size_t extent : shape) bytes *= extent;
  struct Block {
    void* data;
    std::size_t bytes;
  };
  SlabResource& memory = Runtime::get().memory();
  auto block = std::make_unique<Block>(Block{memory.allocate(std::max<std::size_t>(bytes, 64), 64), bytes});
  void* const data = block->data;
  nb::capsule owner(block.release(), [](void* owned) noexcept {
    const std::unique_ptr<Block> freed(static_cast<Block*>(owned));
    Runtime::get().memory().deallocate(freed->data, std::max<std::size_t>(freed->bytes, 64), 64);
  });
  auto dtype = type == DataType::f32 ? nb::dtype<float>() : nb::dtype<double>();
  if (complex_numbers) {
    dtype = type == DataType::f32 ? nb::dtype<std::complex<float>>() : nb::dtype<std::complex<double>>();
  }
  return nb::cast(
      nb::ndarray<nb::numpy>(data, shape.size(), shape.data(), owner, nullptr, dtype, nb::device::cpu::value, 0));
}

}  // namespace convolume::python
