// Loops that reach the limits of a core: multiply-adds, loads and stores. Only for measuring machines.
#pragma once

#include "convolume/tensor.hpp"

namespace convolume {

/// The kernels of one SIMD target. Thread-safe. Allocate nothing.
struct ProbeKernels {
  index_t vector_bytes;
  int chains;
  /// Computes `chains` times `rounds` multiply-adds of vectors in registers. Returns a value that depends on all.
  float (*multiply_adds)(index_t rounds);
  /// Computes `rounds` multiply-adds of which each waits for the one before. Returns the result.
  float (*dependent_multiply_adds)(index_t rounds);
  /// Loads n floats `rounds` times. n is a multiple of 8 vectors, and x is aligned to a vector.
  float (*load)(const float* x, index_t n, index_t rounds);
  /// Stores n floats `rounds` times.
  void (*store)(float* x, index_t n, index_t rounds);
};

/// Returns the kernels of the current SIMD target.
ProbeKernels probe_kernels() noexcept;

}  // namespace convolume
