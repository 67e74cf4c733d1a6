// Transforms of tiles with the ends of a convolution: windows of a tensor in either layout, shifted, with an
// activation's gradient on the way in; bias, activation or a sum on the way out.
#pragma once

#include <array>
#include <optional>

#include "conv/tensor_io/block_view.hpp"
#include "fft/tile_plan.hpp"

namespace convolume::conv {

/// Voxels [origin, origin + window) of a block; those outside the tensor count as zero. Window voxel i stands at point
/// (i - shift) mod T of the tile, the rest is zero.
template <class T>
struct TileSource {
  BlockView<const T> block;
  Extent3 origin{0, 0, 0}, window{}, shift{0, 0, 0};
  /// Where the next tile's window begins, of tiles of one plane, which are asked for ahead.
  std::optional<Extent3> next{};
  /// Multiplies by the gradient that `activation` has at y (the same voxels), where given.
  const Activation* activation = nullptr;
  BlockView<const T> y{};
};

/// Points [0, window) of a tile to voxels from origin on; those outside the tensor are dropped.
///   target = activation(scale * value + bias[lane]), or target += scale * value.
template <class T>
struct TileTarget {
  BlockView<T> block;
  Extent3 origin{0, 0, 0}, window{};
  T scale = 1;
  const T* bias = nullptr;  ///< one value per channel of the block
  Activation activation{};
  bool add = false;
  fft::TileBox fresh{};  ///< with `add`: voxels of the window that hold nothing yet
  /// For invert_planes, where the tensor is blocked, aligned to 64 bytes and not added to: voxels do not stay in the
  /// caches, nor are their lines read first. Whoever lets others read them calls fence_streams() before.
  bool past_caches = false;
};

/// As TilePlan::forward and inverse; the plan's support must hold what the source fills or the target wants.
template <class T>
void transform_tile(const fft::TilePlan<T>& plan, const TileSource<T>& source, T* spectrum,
                    const fft::TileStrides& strides, T* scratch);
/// The same past the caches, for a spectrum that is read much later; it is aligned to 64 bytes, as are its strides.
/// `scratch` holds stream_bytes().
template <class T>
void stream_tile(const fft::TilePlan<T>& plan, const TileSource<T>& source, T* spectrum,
                 const fft::TileStrides& strides, T* scratch);
template <class T>
void invert_tile(const fft::TilePlan<T>& plan, T* spectrum, const fft::TileStrides& strides,
                 const TileTarget<T>& target, T* scratch);

/// Where the planes of one channel block stand, side by side, before lines along Z make a spectrum of them:
/// [frequency block][z][re, im][lane].
template <class T>
fft::TileStrides plane_strides(const fft::TilePlan<T>& plan) {
  constexpr index_t lanes = fft::tile_lanes<T>;
  return {.block = plan.support().z * 2 * lanes, .frequency = 2 * lanes, .tile = 0, .channel_block = 0, .re_im = lanes};
}
template <class T>
std::size_t planes_bytes(const fft::TilePlan<T>& plan) {
  return static_cast<std::size_t>(plan.blocks() * plane_strides(plan).block) * sizeof(T);
}
/// Copies `count` elements past the caches, all aligned to 64 bytes. fence_streams() comes before other threads read
/// them.
template <class T>
void stream_copy(const T* from, index_t count, T* to);
void fence_streams();

/// The plan's scratch, planes, and one line of spectra.
template <class T>
std::size_t stream_bytes(const fft::TilePlan<T>& plan) {
  return plan.scratch_bytes() + planes_bytes(plan) + 128 * static_cast<std::size_t>(plan.extent().z);
}

/// Without the lines along Z, which TilePlan::forward_lines and inverse_lines do.
template <class T>
void transform_planes(const fft::TilePlan<T>& plan, const TileSource<T>& source, T* spectrum,
                      const fft::TileStrides& strides, T* scratch);
template <class T>
void invert_planes(const fft::TilePlan<T>& plan, const T* spectrum, const fft::TileStrides& strides,
                   const TileTarget<T>& target, T* scratch);

}  // namespace convolume::conv
