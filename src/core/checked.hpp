// Arithmetic on sizes that says so when it overflows.
#pragma once

#include <string_view>
#include <type_traits>
#include <utility>

#include "convolume/error.hpp"
#include "convolume/tensor.hpp"

namespace convolume {

[[noreturn]] void throw_overflow(std::string_view what);

/// a * b; throws OverflowError naming `what`.
inline index_t checked_mul(index_t a, index_t b, std::string_view what = "size") {
  index_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) throw_overflow(what);
  return result;
}

/// a + b; throws OverflowError naming `what`.
inline index_t checked_add(index_t a, index_t b, std::string_view what = "size") {
  index_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) throw_overflow(what);
  return result;
}

/// The smallest multiple of `unit` that is at least n; throws OverflowError naming `what`.
inline index_t round_up(index_t n, index_t unit, std::string_view what = "size") {
  return checked_add(n, unit - 1, what) / unit * unit;
}

/// The same number in another integer type; throws OverflowError naming `what` where it does not fit.
template <class To, class From>
To checked_cast(From value, std::string_view what = "number") {
  static_assert(std::is_integral_v<To> && std::is_integral_v<From>);
  if (!std::in_range<To>(value)) throw_overflow(what);
  return static_cast<To>(value);
}

}  // namespace convolume
