// NumPy arrays as tensor views, without copies, and new arrays on the memory of results.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "python/bindings/held_buffer.hpp"

#include "convolume/tensor.hpp"

namespace convolume::python {

/// An array of numbers while a call uses it. Created and destroyed with the GIL.
class Array {
 public:
  /// How an array is used: only read, or written.
  enum class Use { input, output };

  Array() = default;
  /// Takes the buffer of a NumPy array of float32 or float64. An input whose rows are not contiguous along the last
  /// axis is copied once; an output is refused. Throws nb::type_error or InvalidArgument that names `name`.
  Array(const char* name, nb::handle array, Use use, int least_axes, int most_axes);

  explicit operator bool() const noexcept { return static_cast<bool>(buffer_); }
  const char* name() const noexcept { return name_; }
  DataType type() const noexcept { return type_; }
  int axes() const noexcept { return buffer_->ndim; }
  index_t extent(int axis) const noexcept { return buffer_->shape[axis]; }
  /// Returns the array as a tensor: the last three axes are Z, Y, X; a missing first axis has extent 1.
  TensorView tensor() const;
  /// Returns a vector of values, one per channel, as the tensor 1 x n x 1 x 1 x 1.
  TensorView channels() const;
  nb::object object() const { return nb::borrow(buffer_->obj); }

  /// Returns the first byte and the byte behind the last one.
  std::array<std::uintptr_t, 2> bounds() const noexcept { return buffer_.bounds(); }
  /// Throws InvalidArgument if two elements share memory.
  void require_distinct_elements() const;

 private:
  index_t stride(int axis) const noexcept;  ///< in elements

  HeldBuffer buffer_;
  const char* name_ = "";
  DataType type_ = DataType::f32;
};

/// Returns a tensor whose elements lie at `data`. Strides are in elements, of as many axes as the array has: 5, or 4
/// without N, whose extent is then 1. Axes of length 1 may have any stride.
TensorView tensor_at(void* data, DataType type, const Shape5& shape, std::span<const index_t> stride);

/// Throws InvalidArgument if an output overlaps one of the inputs.
void require_disjoint(const Array& output, std::initializer_list<const Array*> inputs);

/// Returns a new array of real or complex numbers on the memory of results. Its values are undefined.
nb::object new_array(DataType type, const std::vector<std::size_t>& shape, bool complex_numbers = false);

}  // namespace convolume::python
