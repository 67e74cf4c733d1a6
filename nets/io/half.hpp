// Floats of 16 bits, which are read only.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace convolume::nets::io::detail {

/// Returns the float of 16 bits (IEEE 754) at an address that need not be aligned, in the machine's byte order.
inline float half_at(const void* from) noexcept {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float magnitude =
      exponent == 31  ? fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN()
       : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                      : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return std::copysign(magnitude, (bits & 0x8000) != 0 ? -1.0f : 1.0f);
}

}  // namespace convolume::nets::io::detail
