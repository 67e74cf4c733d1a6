// How many transforms an engine executes, of what, and how long they take.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "convolume/conv.hpp"

namespace convolume::conv {

enum class Counted { input, weights, gradient, inverse };

/// Thread-safe. The clock is only read out: nothing that is computed depends on it.
class TransformMeter {
 public:
  /// Runs body(), one transform (of all planes of a feature map).
  template <class Body>
  void measure(Counted what, const Body& body) noexcept(noexcept(body())) {
    measure_part(body);
    counts_[static_cast<std::size_t>(what)].fetch_add(1, std::memory_order_relaxed);
  }

  /// Runs body(), a part of transforms that are counted elsewhere.
  template <class Body>
  void measure_part(const Body& body) noexcept(noexcept(body())) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - begin;
    nanoseconds_.fetch_add(taken.count(), std::memory_order_relaxed);
  }

  TransformCounts counts() const noexcept {
    const auto get = [&](Counted what) {
      return counts_[static_cast<std::size_t>(what)].load(std::memory_order_relaxed);
    };
    return {.input = get(Counted::input),
            .weights = get(Counted::weights),
            .gradient = get(Counted::gradient),
            .inverse = get(Counted::inverse),
            .seconds = 1e-9 * static_cast<double>(nanoseconds_.load(std::memory_order_relaxed))};
  }

 private:
  std::array<std::atomic<std::int64_t>, 4> counts_{};
  std::atomic<std::int64_t> nanoseconds_{0};
};

}  // namespace convolume::conv
