// Which voxels meet in a direct convolution, and how its work is cut into tasks. Nothing here knows the number of
// threads; only WeightPieces decides what is summed with what.
#pragma once

#include <vector>

#include "convolume/conv_problem.hpp"
#include "plan/tiled_cost.hpp"

namespace convolume::conv {

/// A voxel of the kernel, and where its source voxel lies from the one that a phase begins at.
struct DirectTap {
  Extent3 offset{};
  index_t tap = 0;  ///< number of the voxel in the kernel
};

/// Results that the same taps reach: all of y; of dx every stride-th voxel per axis.
struct DirectPhase {
  Extent3 residue{0, 0, 0};
  std::vector<DirectTap> taps;  ///< in the kernel's order; none where the stride leaps over the kernel
};

/// Voxels [begin, end) of a tensor; may reach outside.
struct Box {
  Extent3 begin{0, 0, 0}, end{};
  Extent3 extent() const noexcept { return end - begin; }
};

/// How results (y, or dx) meet their source (x, or dy): in each phase results step by `target_step`, their sources by
/// `source_step`.
class DirectMap {
 public:
  DirectMap() = default;
  /// `direction` is forward or backward_data.
  DirectMap(const ConvProblem& problem, plan::Direction direction);

  const Extent3& domain() const noexcept { return domain_; }  ///< extent of the results
  const Extent3& source_step() const noexcept { return source_step_; }
  const Extent3& target_step() const noexcept { return target_step_; }
  const std::vector<DirectPhase>& phases() const noexcept { return phases_; }
  /// Source voxels that the results of a box read.
  Box window(const Box& results) const noexcept;
  /// Source voxel that a phase's taps count from, for a result of it.
  Extent3 base(const Extent3& result) const noexcept;
  /// body(first result, how many along each axis) for the results of a phase in a box, by planes and rows that the same
  /// taps reach: those that meet only padding can be left out, which no bit of a sum feels.
  template <class Body>
  void for_each_alike(const DirectPhase& phase, const Box& box, const Body& body) const {
    const Extent3 begin = first(phase, box.begin), all = count(begin, box.end);
    if (all.x == 0) return;
    Extent3 from = begin, together = all;
    for (index_t z = 0; z < all.z; z += together.z) {
      from.z = begin.z + z * target_step_.z;
      together.z = alike(phase, 0, from.z, all.z - z);
      for (index_t y = 0; y < all.y; y += together.y) {
        from.y = begin.y + y * target_step_.y;
        together.y = alike(phase, 1, from.y, all.y - y);
        body(from, together);
      }
    }
  }
  /// Whether a tap of a result of this phase may meet a voxel on the planes and rows of the source.
  bool meets(const DirectTap& tap, const Extent3& base) const noexcept;

 private:
  /// Results of a phase in a box: the first one, and how many along each axis (0 where there are none).
  Extent3 first(const DirectPhase& phase, const Extent3& begin) const noexcept;
  Extent3 count(const Extent3& first, const Extent3& end) const noexcept;
  /// How many of a phase's next `count` results along an axis, from `result` on, reach the source's voxels with the
  /// same taps.
  index_t alike(const DirectPhase& phase, int axis, index_t result, index_t count) const noexcept;
  index_t base(index_t result, int axis) const noexcept;

  bool to_input_ = false;
  Extent3 domain_{}, source_{}, source_step_{}, target_step_{}, span_{}, stride_{}, pad_{};
  std::vector<DirectPhase> phases_;
};

/// Most taps of a channel block that are summed up in registers before the sum is added to memory. Their weights, for
/// two blocks of lanes, fill a share of the L2; and sums of sums round less than one long sum.
inline constexpr index_t steps_per_pass = 32;

/// n cut into as many pieces of at most `most`, nearly equal: the longest of them.
index_t even(index_t n, index_t most) noexcept;

/// Results are computed in regions of whole rows, for some columns (channel blocks of the result) each.
struct RegionGrid {
  Extent3 extent{}, count{};  ///< voxels of a region, and regions along each axis (one along x)
  index_t columns = 1, column_groups = 1;

  index_t per_sample() const noexcept { return count.z * count.y; }
  Box box(index_t region, const Extent3& domain) const noexcept;
};

/// Regions whose sources and results fit into the L2, large enough that weights are read seldom, and enough of them for
/// many threads. `blocks` of the source are held at once.
RegionGrid choose_regions(const DirectMap& map, index_t batch, index_t source_blocks, index_t result_blocks);

/// The sum over samples and voxels of dy behind the weights' gradient: pieces of whole rows, each summed by itself and
/// added to its part's sums in order; parts, ranges of pieces, are added in order at the end.
struct WeightPieces {
  Extent3 extent{}, count{};  ///< voxels of a piece, and pieces along each axis of a sample
  index_t pieces = 1, parts = 1;
  index_t in_groups = 1, out_groups = 1;  ///< tasks per part: groups of channel blocks; decides no rounding

  index_t per_sample() const noexcept { return count.z * count.y; }
  index_t first_piece(index_t part) const noexcept { return pieces * part / parts; }
  Box box(index_t piece, const Extent3& domain) const noexcept;
};

WeightPieces choose_pieces(const ConvProblem& problem, index_t in_blocks, index_t out_blocks);

/// Voxels of dy in a box whose tap lies inside x.
Box tapped(const ConvProblem& problem, const Box& box, const Extent3& tap) noexcept;
/// Voxels of x that a box of dy meets.
Box met(const ConvProblem& problem, const Box& box) noexcept;

}  // namespace convolume::conv
