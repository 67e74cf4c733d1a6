#include "convolume/tensor.hpp"

#include <fmt/format.h>

#include "core/checked.hpp"

namespace convolume {

const char* name_of(DataType type) noexcept { return type == DataType::f32 ? "f32" : "f64"; }
const char* name_of(Layout layout) noexcept { return layout == Layout::plain ? "plain" : "blocked"; }

const char* name_of(Activation::Kind kind) noexcept {
  switch (kind) {
    case Activation::Kind::none:
      return "none";
    case Activation::Kind::relu:
      return "relu";
    case Activation::Kind::leaky_relu:
      return "leaky_relu";
    case Activation::Kind::sigmoid:
      return "sigmoid";
    case Activation::Kind::tanh:
      return "tanh";
    case Activation::Kind::softsign:
      return "softsign";
  }
  return "unknown";
}

index_t Extent3::volume() const { return checked_mul(checked_mul(z, y, "extent"), x, "extent"); }

index_t Shape5::elements() const {
  if (n < 0 || c < 0 || extent.z < 0 || extent.y < 0 || extent.x < 0) {
    throw InvalidArgument(fmt::format("tensor shape {}: extents cannot be negative", to_string(*this)));
  }
  const index_t count = checked_mul(checked_mul(n, c, "tensor"), extent.volume(), "tensor");
  checked_mul(count, 16, "tensor");  // the size in bytes must fit as well, for any element type up to complex double
  return count;
}

index_t stored_elements(const Shape5& shape, Layout layout, DataType type) {
  if (layout == Layout::plain) return shape.elements();
  const index_t block = channel_block(type);
  Shape5 stored = shape;
  stored.c = checked_mul(shape.c / block + (shape.c % block != 0), block, "blocked channels");
  return stored.elements();
}

std::string to_string(const Extent3& e) { return fmt::format("{} x {} x {}", e.z, e.y, e.x); }
std::string to_string(const Shape5& s) { return fmt::format("{} x {} x {}", s.n, s.c, to_string(s.extent)); }

}  // namespace convolume
