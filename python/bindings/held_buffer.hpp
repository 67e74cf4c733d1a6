// The buffer of a Python object.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <Python.h>
#include <nanobind/nanobind.h>

namespace convolume::python {

namespace nb = nanobind;

/// The buffer of an object while it is used. The object stays alive, and its memory stays where it is. Created and
/// destroyed with the GIL.
class HeldBuffer {
 public:
  HeldBuffer() = default;
  /// The flags include PyBUF_STRIDES. Throws nb::python_error if the object has no buffer with these flags, and
  /// nb::buffer_error if it leaves out its strides, as arrays of ctypes do.
  HeldBuffer(nb::handle object, int flags) {
    auto view = std::make_unique<Py_buffer>();
    if (PyObject_GetBuffer(object.ptr(), view.get(), flags) != 0) nb::raise_python_error();
    view_.reset(view.release());
    if (view_->ndim > 0 && (view_->shape == nullptr || view_->strides == nullptr)) {
      throw nb::buffer_error("the object does not say its strides; use numpy.asarray");
    }
  }

  explicit operator bool() const noexcept { return view_ != nullptr; }
  const Py_buffer& operator*() const noexcept { return *view_; }
  const Py_buffer* operator->() const noexcept { return view_.get(); }

  /// Returns the format of an element, without the byte order if it is this machine's.
  std::string format() const {
    const std::string all = view_->format != nullptr ? view_->format : "B";
    constexpr std::string_view own_order = std::endian::native == std::endian::little ? "@=<" : "@=>!";
    return all.size() > 1 && own_order.find(all.front()) != own_order.npos ? all.substr(1) : all;
  }

  /// Returns the first byte and the byte behind the last one.
  std::array<std::uintptr_t, 2> bounds() const noexcept {
    const auto first = reinterpret_cast<std::uintptr_t>(view_->buf);
    std::uintptr_t begin = first, end = first;
    for (int axis = 0; axis < view_->ndim; ++axis) {
      if (view_->shape[axis] == 0) return {first, first};
      const auto reach = (view_->shape[axis] - 1) * view_->strides[axis];
      (reach < 0 ? begin : end) += static_cast<std::uintptr_t>(reach);
    }
    return {begin, end + static_cast<std::uintptr_t>(view_->itemsize)};
  }

 private:
  struct Release {
    void operator()(Py_buffer* view) const noexcept {
      PyBuffer_Release(view);
      delete view;
    }
  };
  // The shape or the strides of some objects (bytes, array.array) lie in the Py_buffer itself. So it must not move.
  std::unique_ptr<Py_buffer, Release> view_;
};

}  // namespace convolume::python
