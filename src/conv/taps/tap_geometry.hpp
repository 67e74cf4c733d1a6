// Says which voxels a direct convolution multiplies.
#pragma once

#include <vector>

#include "convolume/conv_problem.hpp"
#include "plan/tiled_cost.hpp"

namespace convolume::conv {

/// A voxel of the kernel, and the distance of its source voxel from the voxel at which a phase begins.
struct DirectTap {
  Extent3 offset{};
  index_t tap = 0;  ///< index of the voxel in the kernel
  /// Whether this tap reads each voxel before the other taps of its phase do, if rows of results are computed in order.
  bool meets_first = false;
};

/// Results that the same taps reach: all voxels of y, or every stride-th voxel of dx per axis.
struct DirectPhase {
  Extent3 residue{0, 0, 0};
  Extent3 count{0, 0, 0};       ///< taps along each axis; 0 if the stride skips the kernel
  std::vector<DirectTap> taps;  ///< in the kernel's order, X fastest; empty if they are only counted
};

/// Voxels [begin, end) of a tensor. The box may extend beyond the tensor.
struct Box {
  Extent3 begin{0, 0, 0}, end{};
  Extent3 extent() const noexcept { return end - begin; }
};

/// Whether a DirectMap lists the taps of its phases, which takes long for a huge kernel, or only counts them.
enum class Taps { listed, counted };

/// Relates results (y, or dx) to their source (x, or dy). In each phase, neighbouring results are `target_step` apart,
/// and their source voxels are `source_step` apart.
class DirectMap {
 public:
  DirectMap() = default;
  /// `direction` is forward or backward_data. With Taps::counted, each phase has its count and an empty list.
  DirectMap(const ConvProblem& problem, plan::Direction direction, Taps taps = Taps::listed);

  const Extent3& domain() const noexcept { return domain_; }  ///< extent of the results
  const Extent3& source_step() const noexcept { return source_step_; }
  const Extent3& target_step() const noexcept { return target_step_; }
  const std::vector<DirectPhase>& phases() const noexcept { return phases_; }
  /// Returns the source voxels that the results of a box read (the input window).
  Box window(const Box& results) const noexcept;
  /// Returns the source voxel from which the offsets of a phase's taps count, for one of its results.
  Extent3 base(const Extent3& result) const noexcept;
  /// Returns whether each tap reads padding along X for at most one result of a row, the first or the last one.
  bool pads_one_result() const noexcept;
  /// Divides the results of a phase in a box into parts of whole rows that read padding along Z and Y with the same
  /// taps, and calls body(first result, count along each axis) for each part. The taps that read only padding can then
  /// be clipped. This does not change the bits of any sum.
  template <class Body>
  void for_each_equal_run(const DirectPhase& phase, const Box& box, const Body& body) const {
    const Extent3 begin = first(phase, box.begin), all = count(begin, box.end);
    if (all.x == 0) return;
    Extent3 from = begin, together = all;
    for (index_t z = 0; z < all.z; z += together.z) {
      from.z = begin.z + z * target_step_.z;
      together.z = equal_run(phase, 0, from.z, all.z - z);
      for (index_t y = 0; y < all.y; y += together.y) {
        from.y = begin.y + y * target_step_.y;
        together.y = equal_run(phase, 1, from.y, all.y - y);
        body(from, together);
      }
    }
  }
  /// Returns whether a tap of a result with this base reads from a plane and a row of the source that exist.
  bool meets(const DirectTap& tap, const Extent3& base) const noexcept {
    const index_t z = base.z + tap.offset.z, y = base.y + tap.offset.y;
    return z >= 0 && z < source_.z && y >= 0 && y < source_.y;
  }

 private:
  /// Return the first result of a phase in a box, and the count of results along each axis (0 if there are none).
  Extent3 first(const DirectPhase& phase, const Extent3& begin) const noexcept;
  Extent3 count(const Extent3& first, const Extent3& end) const noexcept;
  /// Returns the length of a run of equal results: how many of the phase's next `count` results along an axis, from
  /// `result` on, reach voxels of the source with the same taps.
  index_t equal_run(const DirectPhase& phase, int axis, index_t result, index_t count) const noexcept;
  index_t base(index_t result, int axis) const noexcept;

  bool to_input_ = false;
  Extent3 domain_{}, source_{}, source_step_{}, target_step_{}, span_{}, stride_{}, pad_{};
  std::vector<DirectPhase> phases_;
};

/// Returns a / b, rounded up. `a` may be negative.
constexpr index_t ceil_div(index_t a, index_t b) noexcept { return a > 0 ? (a + b - 1) / b : -(-a / b); }

/// The most taps of a row that a product sums together at each term.
inline constexpr index_t most_row_taps = 5;

/// Divides n into nearly equal pieces of at most `most`, as few as possible. Returns the length of the longest piece.
index_t even(index_t n, index_t most) noexcept;

/// The regions in which results are computed. A region has whole rows, for some columns (channel blocks of the result).
struct RegionGrid {
  Extent3 extent{}, count{};  ///< voxels of a region, and number of regions along each axis (one along X)
  index_t columns = 1, column_groups = 1;

  index_t per_sample() const noexcept { return count.z * count.y; }
  Box box(index_t region, const Extent3& domain) const noexcept;
};

/// Returns the voxels of dy in a box for which the source voxel of `tap` lies inside x.
Box clipped_taps(const ConvProblem& problem, const Box& box, const Extent3& tap) noexcept;
/// Returns the voxels of x that a box of dy reads (the input window, clipped to x).
Box input_window(const ConvProblem& problem, const Box& box) noexcept;

/// A box of results of some samples, for some columns (output-channel blocks).
struct Region {
  index_t sample = 0, samples = 1;
  Box box;
  index_t first_column = 0, columns = 1;
};

}  // namespace convolume::conv
