// Places of dimensions and operands in arrays.
#pragma once

#include "convolume/nest.hpp"

namespace convolume::plan {

constexpr std::size_t index_of(Dim dim) noexcept { return static_cast<std::size_t>(dim); }
constexpr std::size_t index_of(Operand operand) noexcept { return static_cast<std::size_t>(operand); }
constexpr bool is_tap(Dim dim) noexcept { return dim >= Dim::kz; }

}  // namespace convolume::plan
