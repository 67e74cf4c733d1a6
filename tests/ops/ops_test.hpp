// Shared by the tests of ops: SIMD targets, data, strided tensors.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include "convolume/cpu.hpp"
#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"

namespace convolume::ops::test {

template <class T>
constexpr T nan = std::numeric_limits<T>::quiet_NaN();
template <class T>
constexpr double epsilon = static_cast<double>(std::numeric_limits<T>::epsilon());

/// Runs `body` on every SIMD target of this machine.
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

/// A tensor with dense channel blocks and gaps between them. All elements, pad lanes and gaps are NaN at first.
template <class T>
class Gapped {
 public:
  explicit Gapped(const Shape5& shape, Layout layout = Layout::plain) : shape_(shape) {
    view_ = View<T>(nullptr, shape, layout);
    auto& [sample, block, plane, row, voxel] = view_.stride;
    block += gap;
    sample = view_.blocks() * block + 2 * gap;
    memory_.assign(static_cast<std::size_t>(shape.n * sample), nan<T>);
    view_.data = memory_.data();
  }
  Gapped(const Gapped& other) : Gapped(other.shape_, other.view_.layout) { memory_ = other.memory_; }

  const View<T>& view() const { return view_; }
  T& at(index_t n, index_t c, index_t v) const { return view_.channel(n, c)[v * view_.stride[4]]; }
  index_t voxels() const { return shape_.extent.volume(); }

  /// Sets each element to f(n, c, voxel), and pad lanes to zero.
  template <class F>
  void set(const F& f) {
    set_pads(0);
    for_each([&](index_t n, index_t c, index_t v) { at(n, c, v) = static_cast<T>(f(n, c, v)); });
  }
  void set_random(Random& random, double low = -1, double high = 1) {
    set([&](index_t, index_t, index_t) { return random.uniform(low, high); });
  }
  /// Copies the elements of another tensor, of any layout.
  void set_from(const Gapped& other) {
    set([&](index_t n, index_t c, index_t v) { return other.at(n, c, v); });
  }
  void set_pads(T value) {
    for_each_pad([&](T& pad) { pad = value; });
  }
  template <class F>
  void for_each(const F& f) const {
    for (index_t n = 0; n < shape_.n; ++n) {
      for (index_t c = 0; c < shape_.c; ++c) {
        for (index_t v = 0; v < voxels(); ++v) f(n, c, v);
      }
    }
  }
  bool pads_zero() const {
    bool all = true;
    for_each_pad([&](const T& pad) { all = all && pad == 0; });
    return all;
  }
  /// Returns whether nothing was written between the channel blocks.
  bool gaps_untouched() const {
    Gapped copy(*this);
    copy.set_pads(nan<T>);
    for_each([&](index_t n, index_t c, index_t v) { copy.at(n, c, v) = nan<T>; });
    const std::vector<T> untouched(memory_.size(), nan<T>);
    return std::memcmp(copy.memory_.data(), untouched.data(), untouched.size() * sizeof(T)) == 0;
  }
  /// Returns whether pad lanes are zero and the gaps are untouched.
  bool clean() const { return pads_zero() && gaps_untouched(); }
  bool same_bits(const Gapped& other) const {
    return std::memcmp(memory_.data(), other.memory_.data(), memory_.size() * sizeof(T)) == 0;
  }
  /// Returns whether each element has the same bits as in another tensor, of any layout.
  bool same_elements(const Gapped& other) const {
    bool all = true;
    for_each([&](index_t n, index_t c, index_t v) {
      all = all && std::memcmp(&at(n, c, v), &other.at(n, c, v), sizeof(T)) == 0;
    });
    return all;
  }

 private:
  static constexpr index_t gap = 3;
  template <class F>
  void for_each_pad(const F& f) const {
    if (view_.layout == Layout::plain) return;
    for (index_t n = 0; n < shape_.n; ++n) {
      for (index_t c = shape_.c; c < view_.blocks() * View<T>::lanes; ++c) {
        for (index_t v = 0; v < voxels(); ++v) f(at(n, c, v));
      }
    }
  }
  Shape5 shape_;
  std::vector<T> memory_;
  View<T> view_;
};

constexpr std::array<Layout, 2> both_layouts{Layout::plain, Layout::blocked};
/// Channel counts below, at and above whole blocks of float and of double.
constexpr std::array<index_t, 8> channel_counts{1, 3, 8, 15, 16, 17, 30, 33};
/// An extent whose planes are split into several tasks if tensors are blocked.
constexpr Extent3 many_slabs{5, 61, 71};

/// Compares with a tolerance relative to the larger of |expected| and `scale`.
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
  // The run is outside the assertion, because a test may expect that it throws.
  const RunResult result = graph.run(scheduler);
  REQUIRE(result == RunResult::completed);
}

/// Tasks that do nothing, one per sample, channel block and plane of a tensor.
struct Producers {
  Producers(TaskGraph& graph, const Shape5& shape, index_t block_channels)
      : blocks((shape.c - 1) / block_channels + 1), depth(shape.extent.z) {
    for (index_t i = 0; i < shape.n * blocks * depth; ++i) tasks.push_back(graph.add({.name = "producer"}, [] {}));
    ready = Ready(tasks, blocks, depth, block_channels, 1);
  }
  TaskId of(index_t n, index_t block, index_t z) const {
    return tasks[static_cast<std::size_t>((n * blocks + block) * depth + z)];
  }
  std::vector<TaskId> tasks;
  index_t blocks, depth;
  Ready ready;
};

/// Returns whether the task that completes plane `plane` of channel `channel` waits for `producer`.
inline bool waits(const TaskGraph& graph, const Ready& done, index_t channel, index_t plane, TaskId producer) {
  std::vector<TaskId> tasks;
  done.collect(0, channel, channel + 1, plane, plane + 1, tasks);
  REQUIRE(tasks.size() == 1);
  return graph.ordered(producer, tasks[0]);
}

}  // namespace convolume::ops::test
