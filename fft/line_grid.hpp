// Positions of the lines of a volume that a vector works on.
#pragma once

#include <algorithm>
#include <array>

#include "fft/line_kernels.hpp"

namespace convolume::fft {

inline constexpr int most_lanes = 16;

/// Lines numbered (outer, inner), inner fastest, and the distances in elements between their first points.
struct LineGrid {
  index_t inner;  ///< lines side by side
  std::ptrdiff_t inner_step, outer_step;

  /// Writes the offsets of lines first .. first + count. It repeats the offset of the first line until there are
  /// `padded` entries.
  void offsets(index_t first, index_t count, index_t padded, std::ptrdiff_t* out) const {
    if (inner * inner_step == outer_step) {
      for (index_t lane = 0; lane < count; ++lane) out[lane] = (first + lane) * inner_step;
      std::fill(out + count, out + std::max(count, padded), first * inner_step);
      return;
    }
    index_t i = first % inner;
    std::ptrdiff_t row = first / inner * outer_step;
    for (index_t lane = 0; lane < count; ++lane) {
      out[lane] = row + i * inner_step;
      if (++i == inner) {
        i = 0;
        row += outer_step;
      }
    }
    for (index_t lane = count; lane < padded; ++lane) out[lane] = out[0];
  }
  /// Describes lines first .. first + count from `origin` as runs of neighbours that lie `apart` elements from each
  /// other. Returns the number of runs.
  template <class T>
  int runs(T* origin, index_t first, index_t count, std::ptrdiff_t apart,
           std::array<LaneRun<T>, most_lanes>& out) const {
    const bool one_row = inner * inner_step == outer_step;
    index_t i = first % inner;
    T* row = origin + first / inner * outer_step;
    int n = 0;
    for (index_t lane = 0; lane < count;) {
      const index_t left = one_row ? count - lane : std::min(count - lane, inner - i);
      const index_t together = inner_step == apart ? left : 1;
      out[static_cast<std::size_t>(n++)] = {row + i * inner_step, static_cast<int>(lane), static_cast<int>(together)};
      lane += together;
      i += together;
      if (i >= inner) {
        row += i / inner * outer_step;
        i %= inner;
      }
    }
    return n;
  }
};

/// Memory layout of complex lines: elements between points, and from a real to its imaginary part. im is 1 if they
/// interleave.
struct Spacing {
  std::ptrdiff_t step, im;
  bool interleaved() const { return im == 1; }
};

}  // namespace convolume::fft
