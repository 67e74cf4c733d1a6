#include "fft/factors.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "fft/line_kernels.hpp"

namespace convolume::fft {
namespace {

/// Cycles per point of a pass of each radix, twiddle factors included, measured on lines that lie in the L1. In
/// addition, a pass moves every point through the L1, or through the L2 for long lines; `move_cycles` is the price of
/// that.
constexpr std::array<double, largest_codelet + 1> pass_cycles{0,   4.0, 5.5,  5.6, 5.7,  6.3,  6.9,  7.2, 7.6,
                                                              8.5, 7.9, 12.5, 9.4, 16.6, 10.6, 11.2, 11.2};
constexpr double move_cycles = 3.5;
/// Cycles per point of a prime radix among other radices, beside the transform itself: twiddle factors and strided
/// points.
constexpr double separate_cycles = 8;
constexpr double copy_cycles = 4.5, product_cycles = 5.0, call_cycles = 30;

/// Returns the cheapest sequence of codelets for a length without prime factors above 13.
Factorization factorize_smooth(index_t n) {
  std::map<index_t, Factorization> best;
  best[1] = {{}, 0};
  // Lengths that divide n, smallest first. The best sequence for each adds one radix to the best sequence for a smaller
  // one.
  std::vector<index_t> divisors;
  for (index_t m = 1; m * m <= n; ++m) {
    if (n % m != 0) continue;
    divisors.push_back(m);
    if (m != n / m) divisors.push_back(n / m);
  }
  std::sort(divisors.begin(), divisors.end());
  for (const index_t m : divisors) {
    if (m == 1) continue;
    Factorization& choice = best[m];
    choice.cycles = -1;
    for (index_t radix = largest_codelet; radix >= 2; --radix) {
      if (m % radix != 0) continue;
      const Factorization& rest = best[m / radix];
      if (rest.cycles < 0) continue;
      // Here the unit is cycles per point, so that different lengths compare.
      const double cycles = rest.cycles + pass_cycles[static_cast<std::size_t>(radix)] + move_cycles;
      if (choice.cycles >= 0 && choice.cycles <= cycles) continue;
      choice = rest;
      choice.radices.push_back(radix);
      choice.cycles = cycles;
    }
  }
  Factorization result = best[n];
  std::sort(result.radices.rbegin(), result.radices.rend());
  result.cycles = result.cycles * static_cast<double>(n) + call_cycles * static_cast<double>(result.radices.size());
  return result;
}

/// Returns the cheapest smooth length from `least` up to 2 * `least`.
index_t convolution_length(index_t least) {
  index_t best = 0;
  double cycles = 0;
  for (index_t m = least; m <= 2 * least; ++m) {
    if (!is_smooth(m)) continue;
    const double candidate = factorize_smooth(m).cycles;
    if (best == 0 || candidate < cycles) {
      best = m;
      cycles = candidate;
    }
    // A transform longer than 1.25 * least cannot be cheaper.
    if (m > least + least / 4 && best != 0) break;
  }
  return best;
}

double convolution_cycles(index_t points, index_t length) {
  const auto n = static_cast<double>(length), p = static_cast<double>(points);
  return 2 * factorize(length).cycles + product_cycles * n + 2 * copy_cycles * p + 4 * call_cycles;
}

}  // namespace

bool is_smooth(index_t n) {
  for (const index_t p : {2, 3, 5, 7, 11, 13}) {
    while (n % p == 0) n /= p;
  }
  return n == 1;
}

index_t largest_prime_factor(index_t n) {
  index_t largest = 1;
  for (index_t p = 2; p * p <= n; ++p) {
    for (; n % p == 0; n /= p) largest = p;
  }
  return n > 1 ? n : largest;
}

PrimeChoice choose_prime(index_t p, PrimeAlgorithm requested) {
  const auto candidate = [p](PrimeAlgorithm algorithm) -> PrimeChoice {
    switch (algorithm) {
      case PrimeAlgorithm::rader:
        return {algorithm, p - 1, convolution_cycles(p, p - 1)};
      case PrimeAlgorithm::rader_padded: {
        const index_t length = convolution_length(2 * p - 3);
        return {algorithm, length, convolution_cycles(p, length)};
      }
      case PrimeAlgorithm::bluestein: {
        const index_t length = convolution_length(2 * p - 1);
        return {algorithm, length, convolution_cycles(p, length)};
      }
      default: {
        const auto h = static_cast<double>((p - 1) / 2);
        return {PrimeAlgorithm::generic, 0, 4.4 * h * h + 14 * h + call_cycles};
      }
    }
  };
  if (requested != PrimeAlgorithm::automatic) return candidate(requested);
  PrimeChoice best = candidate(PrimeAlgorithm::generic);
  for (const auto algorithm : {PrimeAlgorithm::rader, PrimeAlgorithm::rader_padded, PrimeAlgorithm::bluestein}) {
    const PrimeChoice other = candidate(algorithm);
    if (other.cycles < best.cycles) best = other;
  }
  return best;
}

Factorization factorize(index_t n) {
  std::vector<index_t> primes;
  index_t smooth = n;
  double cycles = 0;
  for (index_t p = largest_prime_factor(smooth); p > 13; p = largest_prime_factor(smooth)) {
    primes.push_back(p);
    smooth /= p;
    cycles += choose_prime(p, PrimeAlgorithm::automatic).cycles * static_cast<double>(n / p);
    if (p != n) cycles += separate_cycles * static_cast<double>(n);
  }
  Factorization rest = factorize_smooth(smooth);
  cycles += rest.cycles * static_cast<double>(n / smooth);
  primes.insert(primes.end(), rest.radices.begin(), rest.radices.end());
  return {primes, cycles};
}

}  // namespace convolume::fft
