// Measures the limits of a machine: peak, bandwidths and latencies.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>

#include "convolume/machine.hpp"
#include "core/probe_kernels.hpp"

namespace convolume::probe {

/// Frees memory that aligned_alloc() returned.
struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

/// Zeroed memory, aligned to 2 MiB so that it can lie in large pages.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes)
      : bytes_((bytes + page - 1) / page * page), memory_(std::aligned_alloc(page, bytes_)) {
    if (memory_ == nullptr) throw std::bad_alloc();
    std::memset(memory_.get(), 0, bytes_);
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_.get());
  }

 private:
  static constexpr std::size_t page = 2 << 20;
  std::size_t bytes_;
  std::unique_ptr<void, Free> memory_;
};

/// Returns the least seconds of a call of body(), over at least `budget` seconds and three calls. The least is taken,
/// because a row describes an undisturbed machine.
template <class Body>
double least_seconds(double budget, const Body& body) {
  body();  // touches memory
  double least = HUGE_VAL;
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto begin = Clock::now();
  for (int calls = 0; calls < 3 || seconds_since(begin) < budget; ++calls) {
    const auto start = Clock::now();
    body();
    least = std::min(least, seconds_since(start));
  }
  return least;
}

// All functions measure for about `budget` seconds and return the best value, because a row describes an undisturbed
// machine. `kernels` belong to one SIMD target.

/// Returns the frequency in GHz.
double ghz(double budget);
/// Returns the multiply-adds of vectors per second.
double peak(const ProbeKernels& kernels, double budget);
/// Returns the seconds of a multiply-add that waits for the one before.
double multiply_add_latency(const ProbeKernels& kernels, double budget);
/// Return the bytes per second of loads from, and stores to, a buffer of so many bytes.
double loads(const ProbeKernels& kernels, double bytes, double budget);
double stores(const ProbeKernels& kernels, double bytes, double budget);
/// Returns the seconds of a load whose address is the result of the load before, in a buffer of so many bytes.
double latency(double bytes, double budget);

/// Fits the price of least relative error (root mean square) to measured transfers. Prices below 0 become 0.
class PriceFit {
 public:
  void add(double runs, double elements, double seconds);
  TransferPrice price() const;

 private:
  /// The normal equations: each row belongs to start, jump or element, and the last column is the right side.
  std::array<std::array<double, 4>, 3> normal_{};
};

/// Returns the price of transfers into the L1 from random places of a buffer of so many bytes. It is the price of least
/// relative error (root mean square) over transfers of 1, 4 and 16 runs of 64, 256 and 1024 bytes.
TransferPrice transfer_price(double bytes, double budget);

/// Runs body(0) ... body(bodies - 1) at the same time.
using Together = std::function<void(int bodies, const std::function<void(int)>& body)>;
/// Returns the bytes per second that so many threads load together, each from a buffer of `bytes`.
double loads_of_all(const ProbeKernels& kernels, int threads, double bytes, double budget, const Together& together);

}  // namespace convolume::probe
