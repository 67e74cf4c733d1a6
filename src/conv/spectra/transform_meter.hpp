// Counts the transforms of an engine by the tensor that is transformed, and measures their time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "convolume/conv.hpp"

namespace convolume::conv {

enum class Counted { input, weights, gradient, inverse };

/// Thread-safe. No result depends on the clock.
class TransformMeter {
 public:
  /// Runs body(), counts `transforms` transforms and measures their time. The transforms of all planes of a feature map
  /// count as one.
  template <class Body>
  void measure(Counted what, const Body& body, std::int64_t transforms = 1) noexcept(noexcept(body())) {
    measure_part(what, body);
    counts_[static_cast<std::size_t>(what)].fetch_add(transforms, std::memory_order_relaxed);
  }

  /// Runs body(), a part of transforms that are counted elsewhere, and measures its time.
  template <class Body>
  void measure_part(Counted what, const Body& body) noexcept(noexcept(body())) {
    measure_parts(what, 1, body);
  }

  /// Runs body(), which is part `index` of `count` short and equal parts. Reading the clock takes a tenth of the time
  /// of such a part. So only one part in eight is measured, and its time counts for all eight.
  template <class Body>
  void sample_part(Counted what, index_t index, index_t count, const Body& body) noexcept(noexcept(body())) {
    constexpr index_t every = 8;
    if (index % every == 0) {
      measure_parts(what, std::min(every, count - index), body);
    } else {
      body();
    }
  }

  TransformCounts counts() const noexcept {
    const auto get = [&](Counted what) {
      return counts_[static_cast<std::size_t>(what)].load(std::memory_order_relaxed);
    };
    const double forward = 1e-9 * static_cast<double>(forward_nanoseconds_.load(std::memory_order_relaxed));
    const double inverse = 1e-9 * static_cast<double>(inverse_nanoseconds_.load(std::memory_order_relaxed));
    return {.input = get(Counted::input),
            .weights = get(Counted::weights),
            .gradient = get(Counted::gradient),
            .inverse = get(Counted::inverse),
            .seconds = forward + inverse,
            .inverse_seconds = inverse};
  }

 private:
  template <class Body>
  void measure_parts(Counted what, std::int64_t parts, const Body& body) noexcept(noexcept(body())) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - begin;
    auto& sum = what == Counted::inverse ? inverse_nanoseconds_ : forward_nanoseconds_;
    sum.fetch_add(parts * taken.count(), std::memory_order_relaxed);
  }

  std::array<std::atomic<std::int64_t>, 4> counts_{};
  std::atomic<std::int64_t> forward_nanoseconds_{0}, inverse_nanoseconds_{0};
};

}  // namespace convolume::conv
