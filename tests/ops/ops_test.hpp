// What the tests of the ops share: targets, data, strided tensors.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include "convolume/cpu.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"

namespace convolume::ops::test {

template <class T>
constexpr T nan = std::numeric_limits<T>::quiet_NaN();
template <class T>
constexpr double epsilon = static_cast<double>(std::numeric_limits<T>::epsilon());

/// Runs the body on every SIMD target that this machine has.
template <class Body>
void on_every_target(const Body& body) {
  const std::string before = simd_target();
  for (const std::string& target : available_simd_targets()) {
    INFO("SIMD target " << target);
    set_simd_target(target);
    body();
  }
  set_simd_target(before);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  double uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(engine_); }
  index_t integer(index_t low, index_t high) { return std::uniform_int_distribution<index_t>(low, high)(engine_); }
  template <class T>
  std::vector<T> uniform(index_t n, double low, double high) {
    std::vector<T> values(static_cast<std::size_t>(n));
    for (T& value : values) value = static_cast<T>(uniform(low, high));
    return values;
  }

 private:
  std::mt19937_64 engine_;
};

/// A tensor with dense feature maps and gaps between them, everything NaN at first.
template <class T>
class Gapped {
 public:
  explicit Gapped(const Shape5& shape) : shape_(shape) {
    const index_t voxels = shape.extent.volume();
    const index_t channel = voxels + gap;
    memory_.assign(static_cast<std::size_t>(shape.n * (shape.c * channel + 2 * gap)), poison());
    view_ = View<T>(memory_.data(), shape,
                    {shape.c * channel + 2 * gap, channel, shape.extent.y * shape.extent.x, shape.extent.x, 1});
  }
  Gapped(const Gapped& other) : Gapped(other.shape_) { memory_ = other.memory_; }

  const View<T>& view() const { return view_; }
  T& at(index_t n, index_t c, index_t v) const { return view_.channel(n, c)[v]; }
  index_t voxels() const { return shape_.extent.volume(); }

  /// Sets each element to f(n, c, voxel).
  template <class F>
  void set(const F& f) {
    for_each([&](index_t n, index_t c, index_t v) { at(n, c, v) = static_cast<T>(f(n, c, v)); });
  }
  void set_random(Random& random, double low = -1, double high = 1) {
    set([&](index_t, index_t, index_t) { return random.uniform(low, high); });
  }
  template <class F>
  void for_each(const F& f) const {
    for (index_t n = 0; n < shape_.n; ++n) {
      for (index_t c = 0; c < shape_.c; ++c) {
        for (index_t v = 0; v < voxels(); ++v) f(n, c, v);
      }
    }
  }
  /// Whether nobody wrote between the feature maps.
  bool gaps_untouched() const {
    std::vector<T> copy = memory_;
    for_each([&](index_t n, index_t c, index_t v) {
      copy[static_cast<std::size_t>(&at(n, c, v) - memory_.data())] = poison();
    });
    const std::vector<T> untouched(memory_.size(), poison());
    return std::memcmp(copy.data(), untouched.data(), copy.size() * sizeof(T)) == 0;
  }
  bool same_bits(const Gapped& other) const {
    return std::memcmp(memory_.data(), other.memory_.data(), memory_.size() * sizeof(T)) == 0;
  }

 private:
  static constexpr index_t gap = 3;
  static T poison() {
    if constexpr (std::is_floating_point_v<T>) {
      return nan<T>;
    } else {
      return 0xA5;
    }
  }
  Shape5 shape_;
  std::vector<T> memory_;
  View<T> view_;
};

/// Relative to the larger of |expected| and `scale`.
inline bool close(double found, double expected, double tolerance, double scale = 0) {
  if (std::isnan(expected)) return std::isnan(found);
  return std::abs(found - expected) <= tolerance * std::max(std::abs(expected), scale) || (found == expected);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Builds a graph with `build(graph)` and runs it on `threads` threads.
template <class Build>
void run(int threads, const Build& build) {
  Scheduler scheduler(threads);
  TaskGraph graph;
  build(graph);
  // Outside the assertion: a test may expect that it throws.
  const RunResult result = graph.run(scheduler);
  REQUIRE(result == RunResult::completed);
}

}  // namespace convolume::ops::test
