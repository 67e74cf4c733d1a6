// Transforms tiles with the prologues and epilogues of a convolution. The prologue loads a shifted window of a tensor
// in either layout and can multiply it by an activation's gradient. The epilogue applies bias and activation, or adds
// to the tensor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>

#include "conv/spectra/tile_grid.hpp"
#include "conv/tensor_io/block_view.hpp"
#include "fft/tile_plan.hpp"

namespace convolume::conv {

/// Where the window of the next tile begins, and the block that it lies in: a block of another polyphase component if
/// components alternate.
template <class T>
struct NextTile {
  BlockView<const T> block;
  Extent3 origin{0, 0, 0};
};

/// Voxels [origin, origin + window) of a block. Voxels outside the tensor count as zero. Voxel i of the window is point
/// (i - shift) mod T of the tile, where T is the extent of the tile. All other points are zero.
template <class T>
struct TileSource {
  BlockView<const T> block;
  Extent3 origin{0, 0, 0}, window{}, shift{0, 0, 0};
  /// The next tile, which is prefetched. Used only if tiles have one plane.
  std::optional<NextTile<T>> next{};
  /// If not null, the voxels are multiplied by the gradient that the activation has at the same voxels of y.
  const Activation* activation = nullptr;
  BlockView<const T> y{};
};

/// Stores points [0, window) of a tile into the voxels from `origin` on. Points outside the tensor are dropped.
///   target = activation(scale * value + bias[lane]), or target += scale * value.
template <class T>
struct TileTarget {
  BlockView<T> block;
  Extent3 origin{0, 0, 0}, window{};
  T scale = 1;
  const T* bias = nullptr;  ///< one value per channel of the block
  Activation activation{};
  bool add = false;
  /// With `add`: the voxels of the window that hold nothing yet, so they are overwritten; a box for each tile of the
  /// row. Null means none.
  const fft::TileBox* fresh = nullptr;
  /// Uses non-temporal stores, in invert() and invert_planes(): voxels do not stay in the caches, and their cache lines
  /// are not read first. All rows of the tensor must be aligned to 64 bytes, and `add` must be false. If the tensor is
  /// plain, only rows of several tiles use such stores. Call fence_streams() before other threads read the voxels.
  bool non_temporal = false;
};

/// Neighbouring tiles along X that are transformed together. A TileSource or a TileTarget describes the first of them.
/// The default is a single tile that is not staged (tile_row-inl.hpp).
struct TileRow {
  index_t count = 1;
  index_t step = 0;             ///< voxels from one tile to the next; 0 only in the default
  std::ptrdiff_t spectrum = 0;  ///< elements from the spectrum of one tile to the next
};
/// Returns the row that begins with tile `first` and has at most `most` tiles. Tiles of blocked tensors gain nothing
/// from rows. The next tile of another component lies elsewhere.
inline TileRow row_of(const TileGrid& grid, index_t first, index_t most, Layout layout, std::ptrdiff_t spectrum) {
  if (layout == Layout::blocked) return {};
  const index_t in_row = grid.polyphase.residues() == 1 ? grid.tiling.count.x - grid.place(first).x : 1;
  return {.count = std::min(most, in_row), .step = grid.tiling.valid.x, .spectrum = spectrum};
}
/// Returns the bytes that a row with tiles of the plan's extent needs behind the plan's scratch, if its tensor is
/// plain. With `differentiated`, the source is multiplied by an activation's gradient.
template <class T>
std::size_t row_bytes(const fft::TilePlan<T>& plan, const TileRow& row, bool differentiated) {
  if (row.step == 0) return 0;
  const auto width = static_cast<std::size_t>((row.count - 1) * row.step + plan.extent().x + 2 * fft::tile_lanes<T>);
  // One more row receives lanes without a channel.
  return 64 * width * static_cast<std::size_t>(plan.extent().y * (differentiated ? 2 : 1) + 1);
}

/// Returns the layout of the half-transformed planes of one channel block, before lines along Z are transformed:
/// [frequency block][z][re, im][lane], without gaps.
template <class T>
fft::TileStrides plane_strides(const fft::TilePlan<T>& plan) {
  constexpr index_t lanes = fft::tile_lanes<T>;
  return {.block = plan.support().z * 2 * lanes, .frequency = 2 * lanes, .tile = 0, .channel_block = 0, .re_im = lanes};
}
template <class T>
std::size_t planes_bytes(const fft::TilePlan<T>& plan) {
  return static_cast<std::size_t>(plan.blocks() * plane_strides(plan).block) * sizeof(T);
}
/// Returns how many lines along Z are transformed together before they are written: 8 KiB, a part of the L1. A call
/// costs more than the transform of a short line.
template <class T>
index_t streamed_lines(const fft::TilePlan<T>& plan) {
  return std::max<index_t>(1, 64 / plan.extent().z);
}
/// Returns the bytes of the plan's scratch, of the half-transformed planes and of the lines along Z that are
/// transformed together.
template <class T>
std::size_t stream_bytes(const fft::TilePlan<T>& plan) {
  const index_t points = streamed_lines(plan) * plan.extent().z;
  return plan.scratch_bytes() + planes_bytes(plan) + 128 * static_cast<std::size_t>(points);
}

/// The kernels of one SIMD target. The support of the plan that is passed must include all points that the source fills
/// or the target needs. All are thread-safe and allocate nothing.
template <class T>
struct TileIoKernels {
  using Plan = fft::TilePlan<T>;
  /// Do the same as TilePlan::forward() and inverse() for a row of tiles. If the tensor is plain, `scratch` has
  /// row_bytes() more.
  void (*transform)(const Plan&, const TileSource<T>& source, const TileRow&, T* spectrum, const fft::TileStrides&,
                    T* scratch);
  void (*invert)(const Plan&, T* spectrum, const fft::TileStrides&, const TileTarget<T>& target, const TileRow&,
                 T* scratch);
  /// Do the same without the lines along Z, which TilePlan::forward_lines() and inverse_lines() transform.
  void (*transform_planes)(const Plan&, const TileSource<T>& source, const TileRow&, T* spectrum,
                           const fft::TileStrides&, T* scratch);
  void (*invert_planes)(const Plan&, const T* spectrum, const fft::TileStrides&, const TileTarget<T>& target,
                        const TileRow&, T* scratch);
  /// Transforms a tile and writes each cache line of its spectrum once. If `non_temporal`, non-temporal stores are
  /// used, for spectra that are read much later. The spectrum and its strides must be aligned to 64 bytes. `scratch`
  /// holds stream_bytes().
  void (*stream)(const Plan&, const TileSource<T>& source, bool non_temporal, T* spectrum, const fft::TileStrides&,
                 T* scratch);
  /// Copies `count` elements with non-temporal stores. Both addresses are aligned to 64 bytes, and so is the size. Call
  /// fence_streams() before other threads read the copy.
  void (*stream_copy)(const T* from, index_t count, T* to);
};

/// Returns the kernels of the current SIMD target. Plans call this when they are made.
template <class T>
TileIoKernels<T> tile_io_kernels() noexcept;

/// Waits until the non-temporal stores of this thread are in memory.
void fence_streams();

}  // namespace convolume::conv
