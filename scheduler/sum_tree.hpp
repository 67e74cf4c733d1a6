// Sums over many producers, almost wait-free, with the same bits in any order of arrival.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace convolume::scheduler {

/// The atomics that SumTree uses. Tests replace them by a model checker.
struct StdAtomics {
  template <class T>
  using Pointer = std::atomic<T*>;

  template <class T>
  static T* exchange(Pointer<T>& pointer, T* value, std::memory_order order) noexcept {
    return pointer.exchange(value, order);
  }
  template <class T>
  static void store(Pointer<T>& pointer, T* value, std::memory_order order) noexcept {
    pointer.store(value, order);
  }
};

/// Adds the buffers of `producers` producers along a fixed tree, in the order in which they arrive. In ZNN (Feinberg
/// 2015), all producers meet at one place. A producer leaves its sum there, or takes the sum that it finds and adds the
/// two outside of any lock. So the order of additions is the order of arrival. Here producers meet at the inner nodes
/// of a tree whose leaves are the producers in order. The first producer at a node leaves its sum. The second one takes
/// it, always adds left + right, and continues at the next level. Every producer makes at most one exchange per level
/// and waits for no other producer.
///
/// Invariant: the place of a node is null until the first of its two producers arrives, and again after the second has
/// passed. A sum that a producer has left there belongs to the producer that takes it.
///
/// Thread-safe except reset(). Each producer calls add() once. The tree can be used again after the total has been
/// returned or after reset(), if the new calls happen after that. Only the constructor allocates.
template <class T, class Atomics = StdAtomics>
class SumTree {
 public:
  /// There must be at least one producer. Throws std::bad_alloc.
  explicit SumTree(std::size_t producers) {
    std::size_t nodes = 0;
    for (std::size_t width = producers; width > 1; width = (width + 1) / 2) {
      levels_.push_back({width, nodes});
      nodes += width / 2;
    }
    places_ = std::vector<Place>(nodes);
    reset();
  }

  /// Forgets the sums that producers have left, if not all of them came. No thread may be in add(), and later calls
  /// must happen after this one.
  void reset() noexcept {
    // relaxed: the caller orders this call before and after all other calls.
    for (Place& place : places_) Atomics::store(place.sum, static_cast<T*>(nullptr), std::memory_order_relaxed);
  }

  /// Adds the buffer of a producer. `add(left, right)` must add right to left; it may then reuse right. Returns the
  /// total to the producer that completes it, and null to all others.
  template <class Add>
  T* add(std::size_t producer, T* sum, const Add& add) {
    std::size_t at = producer;
    for (const Level& level : levels_) {
      const bool is_left = at % 2 == 0;
      if (!is_left || at + 1 < level.width) {  // otherwise the node has only one child
        auto& place = places_[level.first + at / 2].sum;
        // release: the producer that takes this sum sees all additions to it. acquire: the same for a sum taken here.
        T* other = Atomics::exchange(place, sum, std::memory_order_acq_rel);
        if (other == nullptr) return nullptr;
        // relaxed: both producers of this node have been here. A producer of the next sum comes after the total was
        // returned, and so after this store.
        Atomics::store(place, static_cast<T*>(nullptr), std::memory_order_relaxed);
        T* left = is_left ? sum : other;
        add(left, is_left ? other : sum);
        sum = left;
      }
      at /= 2;
    }
    return sum;
  }

 private:
  struct Level {
    std::size_t width, first;  // the number of sums that arrive at the level, and the index of its first node
  };
  struct Place {
    typename Atomics::template Pointer<T> sum;
  };

  std::vector<Level> levels_;
  std::vector<Place> places_;
};

}  // namespace convolume::scheduler
