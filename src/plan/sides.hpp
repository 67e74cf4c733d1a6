// Resolves transposed convolutions. Engines and cost models see a convolution from a high-resolution side to a
// low-resolution side, and which of the two sides x is.
#pragma once

#include <utility>

#include "plan/cost_model.hpp"
#include "plan/tiled_cost.hpp"

namespace convolume::plan {

/// The two sides of a problem. The convolution() reads the high-resolution side and writes the low-resolution side. In
/// a plain problem x is the high-resolution side. In a transposed problem y is. Then the forward direction of the
/// problem is the backward data direction of convolution(), and the reverse.
class Sides {
 public:
  explicit Sides(const ConvProblem& problem);

  /// Returns the convolution that is not transposed. Its x is the high-resolution side, and its weights are those of
  /// the problem. For a plain problem it is the problem itself. For a transposed problem it is the convolution whose
  /// gradient with respect to its input the problem computes; it has no epilogue.
  const ConvProblem& convolution() const noexcept { return convolution_; }
  bool y_is_high_res() const noexcept { return y_is_high_res_; }

  /// Return the argument that belongs to the high-resolution or low-resolution side. The arguments belong to x and y.
  template <class V>
  const V& high_res(const V& of_x, const V& of_y) const noexcept {
    return y_is_high_res_ ? of_y : of_x;
  }
  template <class V>
  const V& low_res(const V& of_x, const V& of_y) const noexcept {
    return y_is_high_res_ ? of_x : of_y;
  }
  /// Return the argument that belongs to x or y. The arguments belong to the high-resolution and low-resolution sides.
  template <class V>
  const V& x(const V& of_high_res, const V& of_low_res) const noexcept {
    return high_res(of_high_res, of_low_res);  // the mapping is its own inverse
  }
  template <class V>
  const V& y(const V& of_high_res, const V& of_low_res) const noexcept {
    return low_res(of_high_res, of_low_res);
  }

  /// Maps a direction of the problem to the direction of convolution() that computes the same, and the reverse.
  Direction direction(Direction of_problem) const noexcept {
    if (!y_is_high_res_ || of_problem == Direction::backward_weights) return of_problem;
    return of_problem == Direction::forward ? Direction::backward_data : Direction::forward;
  }
  /// Maps the wanted directions of the problem to those of convolution().
  Wanted wanted(Wanted of_problem) const noexcept {
    if (y_is_high_res_) std::swap(of_problem.forward, of_problem.data);
    return of_problem;
  }
  /// Returns whether the directions may share tiles. Partial sums of tiles cannot have an epilogue, so the direction
  /// that writes y must not be the backward data direction of convolution().
  bool may_share_tiles() const noexcept { return !y_is_high_res_; }

 private:
  ConvProblem convolution_;
  bool y_is_high_res_;
};

}  // namespace convolume::plan
