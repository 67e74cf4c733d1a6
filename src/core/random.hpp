// Counter-based random numbers. A value is a pure function of its key, so neither threads nor order can change it.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace convolume {

/// The key of a stream. The words distinguish streams, e.g. (seed, iteration, node, purpose).
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint32_t a = 0, b = 0;
};

/// Computes Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011): four words per
/// counter.
inline std::array<std::uint32_t, 4> philox(const RandomKey& key, std::uint64_t counter) noexcept {
  std::array<std::uint32_t, 4> c{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), key.a,
                                 key.b};
  auto k0 = static_cast<std::uint32_t>(key.seed);
  auto k1 = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

/// Returns a uniform number in [0, 1) with 24 random bits.
inline double uniform(const RandomKey& key, std::uint64_t counter) noexcept {
  return static_cast<double>(philox(key, counter)[0] >> 8) * 0x1p-24;
}

/// Returns a uniform integer in [0, n), n >= 1. It uses 64 random bits, so that the bias is negligible.
inline std::uint64_t uniform_below(const RandomKey& key, std::uint64_t counter, std::uint64_t n) noexcept {
  const auto words = philox(key, counter);
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32) | words[1];
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits) * n) >> 64);
}

/// Returns a standard normal number by the Box-Muller method.
inline double normal(const RandomKey& key, std::uint64_t counter) noexcept {
  const auto words = philox(key, counter);
  const double u = (static_cast<double>(words[0]) + 1.0) * 0x1p-32;
  const double v = static_cast<double>(words[1]) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586476925 * v);
}

}  // namespace convolume
