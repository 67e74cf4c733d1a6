// Places of dimensions and operands in arrays, and which dimensions decide an element of an operand.
#pragma once

#include "convolume/nest.hpp"

namespace convolume::plan {

constexpr std::size_t index_of(Dim dim) noexcept { return static_cast<std::size_t>(dim); }
constexpr std::size_t index_of(Operand operand) noexcept { return static_cast<std::size_t>(operand); }
constexpr bool is_tap(Dim dim) noexcept { return dim >= Dim::kz; }
constexpr Dim result_dim(int axis) noexcept {
  return static_cast<Dim>(index_of(Dim::z) + static_cast<std::size_t>(axis));
}
constexpr Dim tap_dim(int axis) noexcept {
  return static_cast<Dim>(index_of(Dim::kz) + static_cast<std::size_t>(axis));
}

/// Returns whether the element of an operand depends on a dimension.
constexpr bool touches(const NestSpace& space, Operand operand, Dim dim) noexcept {
  if (operand == Operand::w) return dim == Dim::k || dim == Dim::c || is_tap(dim);
  if (dim == Dim::k) return operand == Operand::y;
  if (dim == Dim::c) return operand == Operand::x;
  return !is_tap(dim) || space.windowed == operand;
}

}  // namespace convolume::plan
