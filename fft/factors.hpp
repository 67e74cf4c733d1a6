// Chooses the passes of a transform of a given length: a deterministic choice by estimated cycles.
#pragma once

#include <vector>

#include "convolume/fft.hpp"

namespace convolume::fft {

struct Factorization {
  std::vector<index_t> radices;  ///< in order of execution: primes above 13 first, then codelets, largest first
  double cycles = 0;             ///< per line of vectors
};

/// Returns the cheapest sequence of radices for n. The cost constants were measured on Zen 4, AVX-512, one core, data
/// in the L1.
Factorization factorize(index_t n);

/// The algorithm for a prime p > 13, its estimated cycles, and the length of its convolution.
struct PrimeChoice {
  PrimeAlgorithm algorithm;
  index_t convolution;  ///< 0 for generic
  double cycles;
};
PrimeChoice choose_prime(index_t p, PrimeAlgorithm requested);

/// Returns the largest prime factor of n, and 1 for n = 1.
index_t largest_prime_factor(index_t n);
/// Returns whether no prime factor of n is above 13, so that codelets transform the whole line.
bool is_smooth(index_t n);

}  // namespace convolume::fft
