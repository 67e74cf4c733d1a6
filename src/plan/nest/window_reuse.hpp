// Reuse of the windowed operand along one axis: pairs of a result and a tap that read the same voxel.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "convolume/nest.hpp"

namespace convolume::plan {

/// Pairs along one axis, in the order of a nest. Thread-safe.
class WindowReuse {
 public:
  struct Pair {
    index_t result = 0, tap = 0;
  };
  /// The first and the last pair that may be the target of a source.
  struct Targets {
    Pair first, last;
  };

  WindowReuse(const NestSpace& space, int axis, std::span<const BoundLoop> loops);

  /// Returns whether a loop of the nest runs along this axis.
  bool has(std::size_t loop) const;
  /// Returns the first pair whose voxel lies in the tensor, if there is one.
  std::optional<Pair> first() const;
  /// Returns the first pair whose voxel another pair reads again, if `loop` carries it: the other pair has the same
  /// positions in the loops outside of `loop`, and a larger one in `loop`, which runs along this axis.
  std::optional<Pair> first_source(std::size_t loop) const;
  /// Returns the targets of a source that has some. If `loop` runs along another axis, these are the pairs that read
  /// the same voxel and have the same positions outside of `loop`, the source included.
  Targets targets(const Pair& source, std::size_t loop) const;
  /// Writes the positions of a pair in the loops along this axis.
  void write(const Pair& pair, std::span<index_t> positions) const;

 private:
  struct AxisLoop {
    std::size_t index;  ///< in the nest
    bool over_taps;
    index_t extent, step;
  };
  /// The outermost loop in which two pairs have different positions.
  struct Fork {
    std::size_t loop;  ///< `none` if the pairs are equal
    bool later;        ///< the second pair comes after the first
  };
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  bool in_tensor(const Pair& pair) const;
  Fork fork(Pair a, Pair b) const;
  bool carries(std::size_t loop, const Pair& source, const Pair& target) const;
  /// Returns the pair that lies `steps` further among those that read the same voxel, if it exists.
  std::optional<Pair> shifted(const Pair& pair, index_t steps) const;
  /// Returns the largest number of steps between two pairs that `loop` can carry.
  index_t most_steps(std::size_t loop) const;
  /// Calls body(pair) in the order of the nest, from loop `level` on, until it returns true.
  template <class Body>
  bool find(std::size_t level, const Pair& begin, const Pair& size, const Body& body) const;

  std::vector<AxisLoop> loops_;
  Pair extent_;
  index_t result_step_, tap_step_, offset_, voxels_;
  index_t result_shift_, tap_shift_;  ///< between neighbouring pairs that read the same voxel
};

}  // namespace convolume::plan
