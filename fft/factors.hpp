// Which passes a length is transformed in: a deterministic choice by estimated cycles.
#pragma once

#include <vector>

#include "convolume/fft.hpp"

namespace convolume::fft {

struct Factorization {
  std::vector<index_t> radices;  ///< in order of execution: primes above 13 first, then codelets, largest first
  double cycles = 0;             ///< per line of vectors
};

/// The cheapest sequence of radices for n. Constants: Zen 4, AVX-512, one core, data in L1.
Factorization factorize(index_t n);

/// The algorithm that `requested` stands for at prime p > 13, its estimated cycles, and the length of its convolution.
struct PrimeChoice {
  PrimeAlgorithm algorithm;
  index_t convolution;  ///< 0 for generic
  double cycles;
};
PrimeChoice choose_prime(index_t p, PrimeAlgorithm requested);

/// Largest prime factor of n; 1 for n = 1.
index_t largest_prime_factor(index_t n);
/// Whether no prime factor of n is above 13: codelets serve all of it.
bool is_smooth(index_t n);

}  // namespace convolume::fft
