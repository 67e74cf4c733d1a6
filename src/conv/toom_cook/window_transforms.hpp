// The transforms of toom_cook: windows of tensors to the values at the points and back. Vectors hold channels, so no
// transform needs a shuffle.
#pragma once

#include "conv/tensor_io/block_view.hpp"
#include "conv/toom_cook/window_points.hpp"

namespace convolume::conv {

/// A row of windows along X, through some planes. Voxels outside of the tensor count as zero.
template <class T>
struct WindowSource {
  BlockView<const T> block;
  Extent3 origin{0, 0, 0};  ///< the first voxel of the first window; may lie outside of the tensor
  index_t planes = 0, windows = 1;
  /// If not null, the voxels are multiplied by the gradient that the activation has at the same voxels of y.
  const Activation* activation = nullptr;
  BlockView<const T> y{};
};

/// A row of windows along X, with their results in each of some planes. Results outside of the tensor are dropped.
///   target = activation(value + bias[lane]), or target += value.
template <class T>
struct WindowTarget {
  BlockView<T> block;
  Extent3 origin{0, 0, 0};
  index_t planes = 0, windows = 1;
  const T* bias = nullptr;  ///< one value per channel of the block
  Activation activation{};
  bool add = false;
  /// Uses non-temporal stores. All rows of the tensor must be aligned to 64 bytes, and `add` must be false. Only
  /// blocked tensors use it. Call fence_streams() before other threads read the voxels.
  bool non_temporal = false;
};

/// Returns the bytes of so many elements.
template <class T>
constexpr std::size_t bytes_of(index_t elements) {
  return static_cast<std::size_t>(elements) * sizeof(T);
}

/// Planes of windows whose rows and columns are transformed: the distances in elements between the frequencies of a
/// plane (X fastest), between rows of windows along Y, between planes, and between windows. The channels of a window
/// lie side by side. So the windows of one frequency lie side by side, if planes are not transformed along Z.
struct PlaneStrides {
  index_t frequency = 0, row = 0, plane = 0, window = 0;
};

/// Returns the distances for so many planes, channel blocks, and windows along Y and X. What is read or written
/// together lies an odd number of cache lines apart, so that it does not displace itself in the caches.
template <class T>
PlaneStrides plane_strides(const WindowShape& shape, index_t planes, const Extent3& windows, index_t blocks) {
  constexpr index_t lanes = fft::tile_lanes<T>;
  const index_t plane = windows.x * blocks + (shape.transforms_lines() && windows.x * blocks % 2 == 0 ? 1 : 0);
  const index_t row = planes * plane;
  return {.frequency = ((windows.y * row) | 1) * lanes,
          .row = row * lanes,
          .plane = plane * lanes,
          .window = blocks * lanes};
}

/// Returns the distance between two of the six frequencies of complete lines, for so many windows.
template <class T>
constexpr index_t line_stride(index_t windows, index_t blocks) {
  return ((windows * blocks) | 1) * fft::tile_lanes<T>;
}

/// The lines along Z of one frequency of the planes: a row of windows along X, and windows along Z. Transformed lines
/// lie at values + h * frequency + window * row, where h is one of six frequencies, and X is fastest among the windows.
template <class T>
struct WindowLines {
  T* planes = nullptr;
  index_t plane = 0, window = 0;  ///< as in PlaneStrides
  T* values = nullptr;
  index_t frequency = 0, row = 0;
  index_t windows_x = 1, windows_z = 1, channels = 0;  ///< channels are whole blocks
};

/// Returns the bytes of scratch that the transforms of planes need for so many windows.
inline std::size_t plane_scratch_bytes(const WindowShape& shape, const Extent3& windows) {
  // Half-transformed windows of a plane, a row of voxels, the same row of y, and a row for lanes without a channel.
  return 64 * static_cast<std::size_t>(windows.x * shape.plane_frequencies() + 3 * shape.voxels(windows).x);
}

/// The kernels of one SIMD target for one shape of windows. All are thread-safe and allocate nothing. Scratch is
/// aligned to 64 bytes. Where an axis is not transformed, voxels and windows are the same.
template <class T>
struct WindowTransforms {
  /// Transforms rows and columns of windows of 6 x 6 voxels, or copies single voxels.
  void (*planes)(const WindowSource<T>& source, T* planes, const PlaneStrides&, T* scratch);
  /// The same for windows of 4 x 4 voxels, as kernels of F(3,4): the other factor of a weight gradient.
  void (*kernel_planes)(const WindowSource<T>& source, T* planes, const PlaneStrides&, T* scratch);
  /// Computes 4 x 4 results of each window and plane, or copies single results, and stores them.
  void (*inverse_planes)(const T* planes, const PlaneStrides&, const WindowTarget<T>& target, T* scratch);
  // The next three serve only shapes that transform lines.
  /// Transform lines of 6 voxels, and lines of 4 voxels as kernels of F(3,4). The lines lie four planes apart.
  void (*lines)(const WindowLines<T>&);
  void (*kernel_lines)(const WindowLines<T>&);
  /// Computes four planes of each window from its six values along Z. The planes of a window begin four planes apart.
  void (*inverse_lines)(const WindowLines<T>&);
  /// Adds b[i] to a[i], i < count.
  void (*add)(const T* b, index_t count, T* a);
};

/// Returns the kernels of the current SIMD target. Plans call this when they are made.
template <class T>
WindowTransforms<T> window_transforms(const WindowShape& shape) noexcept;

}  // namespace convolume::conv
