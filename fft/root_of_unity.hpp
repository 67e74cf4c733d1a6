// Computes exp(-2 pi i k / n) to the precision of long double, also at compile time.
#pragma once

#include <cstdint>

namespace convolume::fft {

struct RootOfUnity {
  long double re, im;
};

namespace detail {

/// Return sin and cos of an angle between 0 and pi/4, by their Taylor series.
constexpr long double sine_series(long double x) {
  long double term = x, sum = x;
  for (int i = 2; i < 26; i += 2) sum += term *= -x * x / static_cast<long double>(i * (i + 1));
  return sum;
}
constexpr long double cosine_series(long double x) {
  long double term = 1, sum = 1;
  for (int i = 1; i < 26; i += 2) sum += term *= -x * x / static_cast<long double>(i * (i + 1));
  return sum;
}

}  // namespace detail

/// Returns exp(-2 pi i k / n) for 0 <= k < n. The angle is first reduced exactly, in integers, to an eighth of a turn.
constexpr RootOfUnity root_of_unity(std::int64_t k, std::int64_t n) {
  constexpr long double pi = 3.14159265358979323846264338327950288L;
  const std::int64_t octant = 8 * k / n;
  // the distance to the nearest multiple of a quarter turn, in units of 1 / (4 n) turns
  const std::int64_t quarter = (octant + 1) / 2, rest = 4 * k - quarter * n;
  const long double angle = pi * static_cast<long double>(rest < 0 ? -rest : rest) / static_cast<long double>(2 * n);
  const long double c = detail::cosine_series(angle);
  const long double s = rest < 0 ? -detail::sine_series(angle) : detail::sine_series(angle);
  switch (quarter % 4) {
    case 0:
      return {c, -s};
    case 1:
      return {-s, -c};
    case 2:
      return {-c, s};
    default:
      return {s, c};
  }
}

}  // namespace convolume::fft
