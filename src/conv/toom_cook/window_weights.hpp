// The transforms of kernels of toom_cook: taps to the values at the points and back.
#pragma once

#include "conv/toom_cook/window_points.hpp"

namespace convolume::conv {

/// Kernels that relate some terms (source channels) to one block of lanes (target channels). Tap t of a kernel of n
/// taps is w[term * term_step + lane * lane_step + t], or + n - 1 - t if `mirrored`. Lanes from `lanes` on are zero.
/// Value f of a term is the block of lanes at to + f * frequency + term * 64 bytes. Frequencies are numbered with Z
/// fastest, then X, then Y.
template <class T>
struct WindowWeights {
  WindowShape shape;
  const T* w = nullptr;
  index_t term_step = 0, lane_step = 0, terms = 0, lanes = 0;
  bool mirrored = false, non_temporal = false;
};
/// Returns the bytes of scratch that WeightTransforms::weights() needs for so many terms.
inline std::size_t weight_scratch_bytes(const WindowShape& shape, index_t terms) {
  return 64 * static_cast<std::size_t>(terms * shape.frequencies());
}

/// The kernels of one SIMD target, for any shape of windows. All are thread-safe and allocate nothing. Scratch is
/// aligned to 64 bytes.
template <class T>
struct WeightTransforms {
  /// Transforms kernels, in double, for one block of lanes and some terms.
  void (*weights)(const WindowWeights<T>& weights, T* to, index_t frequency, T* scratch);
  /// Computes the taps of F(3,4) for one block of lanes: taps[t * 64 bytes], X fastest. `from` has the frequencies of
  /// weights().
  void (*inverse_kernel)(const WindowShape& shape, const T* from, index_t frequency, T* taps);
};

/// Returns the kernels of the current SIMD target. Plans call this when they are made.
template <class T>
WeightTransforms<T> weight_transforms() noexcept;

}  // namespace convolume::conv
