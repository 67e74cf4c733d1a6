// Sums of many producers, almost wait-free, with the same bits whoever comes first.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace convolume::scheduler {

/// std::atomic, as SumTree uses it. Its tests put a model checker in this place.
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

/// Adds up the buffers of `producers` producers along a fixed tree, as they come. ZNN's producers (Feinberg 2015) meet
/// at one place: one leaves its sum there or takes the one that it finds and adds the two outside of any lock, so that
/// the order of the additions is that of arrival. Here they meet in the inner nodes of a tree whose leaves are the
/// producers in order: the first of a node's two leaves its sum, the second one takes it and adds, always left + right,
/// and goes on to the next level. Every producer makes at most one exchange per level and waits for nobody.
///
/// Invariant: a node's place is null until the first of the two comes, and again when the second one has passed. What
/// a producer has left there belongs to the one who takes it.
///
/// Thread-safe but for reset(); each producer calls add() once. Can be used again when the sum of all has been
/// returned, or after reset(), and the calls to come happen after that. Allocates at construction only.
template <class T, class Atomics = StdAtomics>
class SumTree {
 public:
  /// Throws std::bad_alloc. At least one producer.
  explicit SumTree(std::size_t producers) {
    std::size_t nodes = 0;
    for (std::size_t width = producers; width > 1; width = (width + 1) / 2) {
      levels_.push_back({width, nodes});
      nodes += width / 2;
    }
    places_ = std::vector<Place>(nodes);
    reset();
  }

  /// Forgets what producers have left, where not all of them came. Nobody may be in add(), and the calls to come happen
  /// after this.
  void reset() noexcept {
    // relaxed: what is ordered before and behind everything else needs no order of its own.
    for (Place& place : places_) Atomics::store(place.sum, static_cast<T*>(nullptr), std::memory_order_relaxed);
  }

  /// Brings the buffer of a producer. `add(left, right)` adds right to left, which stays; it may reuse right. Returns
  /// the sum of all to the one producer that completes it, null to all others.
  template <class Add>
  T* add(std::size_t producer, T* sum, const Add& add) {
    std::size_t at = producer;
    for (const Level& level : levels_) {
      const bool is_left = at % 2 == 0;
      if (!is_left || at + 1 < level.width) {  // otherwise there is nobody to meet
        auto& place = places_[level.first + at / 2].sum;
        // release: whoever takes the sum sees what was added to it. acquire: likewise for what is taken here.
        T* other = Atomics::exchange(place, sum, std::memory_order_acq_rel);
        if (other == nullptr) return nullptr;
        // relaxed: both have been here. Who comes for the next sum comes after the sum of all was returned, and so
        // after this.
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
    std::size_t width, first;  // sums that come to it, and the place of its first node
  };
  struct Place {
    typename Atomics::template Pointer<T> sum;
  };

  std::vector<Level> levels_;
  std::vector<Place> places_;
};

}  // namespace convolume::scheduler
