// Tests the passes into which a length is factorised, and the algorithm that is chosen for a prime.
#include "fft/factors.hpp"

#include <numeric>

#include <catch2/catch.hpp>

#include "fft/line_kernels.hpp"

using namespace convolume;
using fft::PrimeAlgorithm;

namespace {

bool is_prime(index_t n) {
  for (index_t p = 2; p * p <= n; ++p) {
    if (n % p == 0) return false;
  }
  return n > 1;
}

bool is_smooth(index_t n) {
  for (const index_t p : {2, 3, 5, 7, 11, 13}) {
    while (n % p == 0) n /= p;
  }
  return n == 1;
}

}  // namespace

TEST_CASE("radices multiply to the length: primes above 13 first, then codelets, largest first") {
  for (index_t n = 1; n <= 2500; ++n) {
    const auto factors = fft::factorize(n);
    CAPTURE(n, factors.radices);
    REQUIRE(std::accumulate(factors.radices.begin(), factors.radices.end(), index_t{1}, std::multiplies<>()) == n);
    REQUIRE((n == 1 || factors.cycles > 0));
    bool codelets = false;
    index_t previous = n;
    for (const index_t radix : factors.radices) {
      if (radix > fft::largest_codelet) {
        REQUIRE(is_prime(radix));
        REQUIRE(!codelets);
      } else {
        REQUIRE(radix >= 2);
        REQUIRE((!codelets || radix <= previous));
        codelets = true;
      }
      previous = radix;
    }
  }
}

TEST_CASE("a length is factorised alike every time") {
  for (index_t n = 1; n <= 2000; n += 7) {
    const auto once = fft::factorize(n), again = fft::factorize(n);
    CAPTURE(n);
    REQUIRE(once.radices == again.radices);
    REQUIRE(once.cycles == again.cycles);
  }
}

TEST_CASE("lengths that a codelet holds take no pass more than they need") {
  CHECK(fft::factorize(1).radices.empty());
  for (index_t n = 2; n <= fft::largest_codelet; ++n) {
    CAPTURE(n);
    REQUIRE(fft::factorize(n).radices == std::vector<index_t>{n});
  }
  // Two passes reach every product of two codelets; a third pass never pays.
  for (index_t a = 2; a <= fft::largest_codelet; ++a) {
    for (index_t b = 2; b <= a; ++b) {
      CAPTURE(a, b);
      REQUIRE(fft::factorize(a * b).radices.size() <= 2);
    }
  }
}

TEST_CASE("the largest prime factor is prime, divides, and leaves none that is larger") {
  CHECK(fft::largest_prime_factor(1) == 1);
  for (index_t n = 2; n <= 3000; ++n) {
    const index_t p = fft::largest_prime_factor(n);
    CAPTURE(n, p);
    REQUIRE(is_prime(p));
    REQUIRE(n % p == 0);
    index_t rest = n;
    while (rest % p == 0) rest /= p;
    REQUIRE(fft::largest_prime_factor(rest) < p);
  }
}

TEST_CASE("primes get the algorithm that was asked for, or the cheapest") {
  constexpr PrimeAlgorithm algorithms[] = {PrimeAlgorithm::generic, PrimeAlgorithm::rader, PrimeAlgorithm::rader_padded,
                                           PrimeAlgorithm::bluestein};
  for (index_t p = 17; p < 1500; ++p) {
    if (!is_prime(p)) continue;
    const auto automatic = fft::choose_prime(p, PrimeAlgorithm::automatic);
    double least = 0;
    for (const auto algorithm : algorithms) {
      const auto choice = fft::choose_prime(p, algorithm);
      CAPTURE(p, static_cast<int>(algorithm), choice.convolution, choice.cycles);
      REQUIRE(choice.algorithm == algorithm);
      REQUIRE(choice.cycles > 0);
      if (least == 0 || choice.cycles < least) least = choice.cycles;
      switch (algorithm) {
        case PrimeAlgorithm::generic:
          REQUIRE(choice.convolution == 0);
          break;
        case PrimeAlgorithm::rader:
          REQUIRE(choice.convolution == p - 1);
          break;
        default: {
          // It must be long enough that a linear convolution does not wrap around, and a product of codelets.
          const index_t terms = algorithm == PrimeAlgorithm::bluestein ? p : p - 1;
          REQUIRE(choice.convolution >= 2 * terms - 1);
          REQUIRE(choice.convolution <= 4 * terms);
          REQUIRE(is_smooth(choice.convolution));
        }
      }
    }
    REQUIRE(automatic.cycles == least);
    const auto again = fft::choose_prime(p, PrimeAlgorithm::automatic);
    REQUIRE(again.algorithm == automatic.algorithm);
    REQUIRE(fft::choose_prime(p, automatic.algorithm).convolution == automatic.convolution);
  }
}
