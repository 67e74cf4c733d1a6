// Reuse of elements in a loop nest: which iterations use an element again, how much the nest touches in between, and in
// which cache that fits (paper 004). Nests are ranked by what this costs. docs/planning.md explains it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "convolume/machine.hpp"
#include "convolume/nest.hpp"
#include "convolume/version.hpp"

namespace convolume::plan {

/// All reuse of an operand's elements that one loop carries (paper 004, section 4.1): the source and the target
/// iteration use the same element, agree in the positions of all loops outside of `loop`, and the target has a larger
/// position in `loop`. Reads and writes of an operand are one reuse. Iterations are given by the positions of all
/// loops, in trips, the outermost first.
struct Dependence {
  Operand operand = Operand::x;
  std::size_t loop = 0;           ///< index of the loop that carries it
  std::vector<index_t> source{};  ///< the first iteration whose element is used again
  std::vector<index_t> first_target{}, last_target{};
  Words first{}, last{};  ///< working sets from the source to each target, both included (algorithm 1)

  bool single() const noexcept { return first_target == last_target; }
};

/// Returns the dependences of a nest, by operand (x, w, y) and then by loop. All later targets count, not only the next
/// one. The microkernel's loops are loops as others, and parallel loops are run in order. Deterministic and
/// thread-safe. Throws InvalidArgument as working_set() does.
CONVOLUME_API std::vector<Dependence> dependences(const LoopNest& nest, const NestSpace& space);

/// Returns the working sets of all dependences in bytes: two of each, or one if there is one target. Equal sets count
/// as often as they occur.
CONVOLUME_API std::vector<double> working_set_bytes(std::span<const Dependence> dependences, std::size_t element_bytes);

/// A cache, or the memory behind the caches.
struct ReuseLevel {
  double bytes = 0;      ///< size; unused for memory
  double latency = 0;    ///< of a load, in ns
  double bandwidth = 0;  ///< of loads, in GB/s

  /// What a byte of a working set in this level costs.
  double price() const noexcept { return latency / bandwidth; }
};

/// A memory hierarchy for equation 1.
struct ReuseLevels {
  std::vector<ReuseLevel> caches;  ///< the smallest first
  ReuseLevel memory;

  /// Throws InvalidArgument that names the level and the value, if caches do not grow or if a size, a latency or a
  /// bandwidth is not positive and finite.
  CONVOLUME_API void validate() const;
};

/// Returns the levels of a machine row: L1, usable L2 and a fixed share of the usable L3, which does not depend on the
/// number of threads. Caches that are no larger than the one before are left out. Deterministic.
CONVOLUME_API ReuseLevels reuse_levels(const MachineModel& machine);

/// Working sets, packed into caches.
struct PackedSets {
  std::vector<double> cache_bytes;  ///< sum of the working sets in each cache
  double memory_bytes = 0;          ///< sum of those that no cache has room for
  std::vector<std::size_t> places;  ///< of each working set: index of its cache, or the number of caches for memory
};

/// Packs working sets into caches (algorithm 2): from the smallest to the largest, each into the first cache that still
/// has room for it.
CONVOLUME_API PackedSets pack(std::span<const double> working_sets, std::span<const double> caches);

/// Packs the working sets of a nest in one space into the caches of `levels`.
CONVOLUME_API PackedSets pack(const LoopNest& nest, const NestSpace& space, std::size_t element_bytes,
                              const ReuseLevels& levels);

/// Returns the cost by equation 1: bytes in each level, times its latency, over its bandwidth. Only the order of costs
/// and their ratios mean something.
CONVOLUME_API double reuse_cost(const PackedSets& sets, const ReuseLevels& levels);

/// Returns the sum of the costs of a nest in the spaces of a direction (of one group).
CONVOLUME_API double reuse_cost(const LoopNest& nest, std::span<const NestSpace> spaces, std::size_t element_bytes,
                                const ReuseLevels& levels);

}  // namespace convolume::plan
