// Distinct elements between two iterations, for callers that have bound the nest.
#pragma once

#include <memory>
#include <span>

#include "convolume/nest.hpp"

namespace convolume::plan {

/// Counts working sets of one nest in one space. It keeps its memory from one count to the next, because there are many
/// counts per nest. Not thread-safe.
class WorkingSets {
 public:
  /// The space and the loops must outlive this object. There are at most most_loops loops.
  WorkingSets(const NestSpace& space, std::span<const BoundLoop> loops);
  ~WorkingSets();
  WorkingSets(const WorkingSets&) = delete;
  WorkingSets& operator=(const WorkingSets&) = delete;

  /// Returns the distinct elements that the iterations from `first` to `last`, both included, touch. Both exist, and
  /// `first` does not come after `last`.
  Words between(std::span<const index_t> first, std::span<const index_t> last);

 private:
  class Counter;
  std::unique_ptr<Counter> counter_;
};

}  // namespace convolume::plan
