// Transforms of tiles with the ends of a convolution: windows of a tensor in either layout, shifted, with an
// activation's gradient on the way in; bias, activation or a sum on the way out.
#pragma once

#include <array>
#include <optional>
#include <type_traits>

#include "convolume/tensor.hpp"
#include "fft/tile_plan.hpp"

namespace convolume::conv {

/// One channel block of one sample: `channels` (1 to channel_block) feature maps. Strides in elements between channels
/// (plain), planes, rows and voxels; each voxel of a blocked tensor is 64 bytes.
template <class T>
struct BlockView {
  T* data = nullptr;  ///< voxel 0 of its first channel
  Extent3 extent{};
  index_t channels = 0, channel_stride = 0, plane_stride = 0, row_stride = 0, voxel_stride = 1;
  bool blocked = false;

  /// Whether voxels of a row lie side by side.
  bool dense_rows() const noexcept {
    return voxel_stride == (blocked ? fft::tile_lanes<std::remove_const_t<T>> : index_t{1});
  }
};

/// The block of channels [first, first + channel_block) of a sample. Of a blocked tensor stride[1] is between blocks.
template <class T>
BlockView<T> block_of(const View<T>& tensor, Layout layout, index_t n, index_t first);

/// Bytes of a tensor of which little would still be in the caches when it is read, by the machine model (which takes
/// long to ask).
index_t past_caches_from();
/// Whether results that fill a tensor once go past the caches: it is blocked, aligned to 64 bytes, and holds more than
/// past_caches_from() bytes. Decides no rounding.
template <class T>
bool writes_past_caches(const View<T>& target, index_t from);

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
