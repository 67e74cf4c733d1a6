// The points of Toom-Cook algorithms with six points along an axis: F(4,3) for voxels, F(3,4) for weight gradients
// (Winograd, "Arithmetic complexity of computations", 1980; Barabasz et al., "Error analysis and improving the accuracy
// of Winograd convolution", 2020). The points 0, a, -a, b, -b and infinity with a = 11/16 and b = 23/16 are exact in
// float. They give a third of the error of 0, 1, -1, 2, -2 and infinity.
#pragma once

#include <cstddef>

#include "plan/toom_cook_cost.hpp"

namespace convolume::conv {

/// The channels of a block: 64 bytes.
template <class T>
inline constexpr auto block_lanes = static_cast<std::ptrdiff_t>(64 / sizeof(T));

using plan::window_points;
using plan::window_results;
using plan::window_taps;
using plan::WindowShape;

/// The frequencies of a plane whose rows and columns are transformed.
inline constexpr index_t plane_frequencies = window_points * window_points;

namespace toom_cook {
inline constexpr double a = 11.0 / 16, b = 23.0 / 16;
inline constexpr double a2 = a * a, b2 = b * b, a3 = a2 * a, b3 = b2 * b;
/// Products of the distances of 0, of a and -a, and of b and -b from all other finite points. Values at the points are
/// divided by them on the side of the kernel, which is the smaller one.
inline constexpr double of_zero = a2 * b2, of_a = 2 * a2 * (a2 - b2), of_b = 2 * b2 * (b2 - a2);
}  // namespace toom_cook

}  // namespace convolume::conv
