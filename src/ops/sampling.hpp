// Reads voxels at places between voxels, and changes the intensities of a patch. Training data are augmented with
// these.
#pragma once

#include "convolume/tensor.hpp"
#include "core/random.hpp"

namespace convolume::ops {

/// How a voxel at a place between voxels is read.
enum class Interpolation {
  nearest,
  linear,           ///< from the eight voxels around it
  linear_in_slice,  ///< from the four voxels around it in the nearest slice
  cubic,            ///< from the 64 voxels around it, by cubic convolution with a = -0.5 (Catmull-Rom)
  cubic_in_slice,   ///< from the 16 voxels around it in the nearest slice
};

/// Writes to[i] = the voxel at (z[i], y[i], x[i]) of a dense volume. Places outside are moved to the nearest voxel. If
/// a cubic interpolation reads voxels outside, the nearest voxels stand for them. The volume has fewer than 2^31
/// voxels. No aliasing; thread-safe; allocates nothing.
void sample_row(Interpolation interpolation, const float* voxels, const Extent3& extent, const float* z, const float* y,
                const float* x, float* to, index_t n) noexcept;

/// Computes v = v * factor + offset.
void scale_and_shift(float* v, index_t n, float factor, float offset) noexcept;

/// Adds sigma times a standard normal number to each element. The four numbers of a counter come from its four words,
/// by two Box-Muller transforms: element i has number i % 4 of counter `first` + i / 4.
void add_noise(float* v, index_t n, float sigma, const RandomKey& key, std::uint64_t first) noexcept;

/// Computes v = least + range * ((v - least) / range)^gamma. `range` is positive, and v lies in [least, least + range].
void apply_gamma(float* v, index_t n, float least, float range, float gamma) noexcept;

struct ValueRange {
  double mean = 0;
  float least = 0, largest = 0;
};
/// Returns the mean, the least and the largest of n >= 1 values. The order of additions depends on n and on the SIMD
/// target alone.
ValueRange range_of(const float* v, index_t n) noexcept;

/// Computes to[i] = sum over k of weights[|k|] * from[i + k * stride], where k runs from -radius to radius. `from` has
/// elements for all of these.
void filter(const float* from, index_t stride, const float* weights, index_t radius, float* to, index_t n) noexcept;

}  // namespace convolume::ops
