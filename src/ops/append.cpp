#include "ops/append.hpp"

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::ops {

void require_shape(std::string_view op, std::string_view what, const Shape5& found, const Shape5& wanted) {
  if (found == wanted) return;
  throw ShapeMismatch(
      fmt::format("{}: the shape of {} is {} and has to be {}", op, what, to_string(found), to_string(wanted)));
}

void require_data(std::string_view op, std::string_view what, const void* data, const Shape5& shape) {
  if (shape.n < 1 || shape.c < 1 || shape.extent.z < 1 || shape.extent.y < 1 || shape.extent.x < 1) {
    throw InvalidArgument(fmt::format("{}: {} has no elements: its shape is {}", op, what, to_string(shape)));
  }
  if (data == nullptr) throw InvalidArgument(fmt::format("{}: {} has no data: bind a tensor to it", op, what));
}

void throw_not_dense(std::string_view op, std::string_view what, std::string_view remedy) {
  throw InvalidArgument(
      fmt::format("{}: {} has strides that do not serve: it needs {}; copy it first", op, what, remedy));
}

}  // namespace convolume::ops
