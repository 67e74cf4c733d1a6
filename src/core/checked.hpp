// Arithmetic on sizes that throws if it overflows.
#pragma once

#include <string_view>
#include <type_traits>
#include <utility>

#include "convolume/error.hpp"
#include "convolume/tensor.hpp"

namespace convolume {

[[noreturn]] void throw_overflow(std::string_view what);

/// Returns a * b. Throws OverflowError that names `what`.
inline index_t checked_mul(index_t a, index_t b, std::string_view what = "size") {
  index_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) throw_overflow(what);
  return result;
}

/// Returns a + b. Throws OverflowError that names `what`.
inline index_t checked_add(index_t a, index_t b, std::string_view what = "size") {
  index_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) throw_overflow(what);
  return result;
}

/// Returns the smallest multiple of `unit` that is at least n. Throws OverflowError that names `what`.
inline index_t round_up(index_t n, index_t unit, std::string_view what = "size") {
  return checked_add(n, unit - 1, what) / unit * unit;
}

/// Converts a number to another integer type. Throws OverflowError that names `what` if it does not fit.
template <class To, class From>
To checked_cast(From value, std::string_view what = "number") {
  static_assert(std::is_integral_v<To> && std::is_integral_v<From>);
  if (!std::in_range<To>(value)) throw_overflow(what);
  return static_cast<To>(value);
}

}  // namespace convolume
