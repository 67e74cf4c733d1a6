// Transforms of tiles: small volumes with 64 contiguous bytes, 16 floats or 8 doubles, at every voxel. These values are
// the channels of one tile, or one channel of as many tiles. Every operation works on full vectors; nothing is
// shuffled.
#pragma once

#include <array>
#include <string>
#include <type_traits>

#include "fft/line.hpp"

namespace convolume::fft {

/// Number of values at one voxel that are transformed together.
template <class T>
inline constexpr index_t tile_lanes = static_cast<index_t>(64 / sizeof(T));

/// Memory layout of the spectra of a set of tiles; strides in elements. A *frequency block* is one (ky, kx), numbered
/// ky * X* + kx; its frequencies are kz = 0 .. Z-1. The lanes of a frequency are contiguous. Plans read `block`,
/// `frequency` and `re_im`; `tile` and `channel_block` are for callers that keep several spectra. Places must not
/// overlap: `re_im` and `frequency` are at least tile_lanes.
struct TileStrides {
  index_t block = 0, frequency = 0, tile = 0, channel_block = 0, re_im = 0;
};

/// A box of voxels in coordinates of the tile. `end` is exclusive.
struct TileBox {
  Extent3 begin{0, 0, 0}, end{0, 0, 0};
};

/// A tile whose voxels hold 64 contiguous bytes each (blocked tensors). Voxels outside the box count as zero, or are
/// not written. `data` is the address of voxel 0 of the tile, which may itself lie outside the box.
template <class T>
struct BlockedTile {
  T* data;
  index_t plane_stride, row_stride, voxel_stride;  ///< elements
  TileBox box;
};

/// A tile whose lanes are stored separately: channels of a plain tensor, or tiles of one channel. A lane without data
/// is null. Voxels of a row lie `voxel_stride` elements apart.
template <class T>
struct PlainTile {
  std::array<T*, static_cast<std::size_t>(tile_lanes<std::remove_const_t<T>>)> lanes;  ///< voxel 0 of each
  index_t plane_stride, row_stride;
  std::array<TileBox, static_cast<std::size_t>(tile_lanes<std::remove_const_t<T>>)> boxes;
  index_t voxel_stride = 1;
};

/// How voxels are stored: target = scale * value, or target += scale * value if `add`.
template <class T>
struct TileStore {
  T scale = 1;
  bool add = false;
};

/// Lines along Z of one frequency block (ky, kx) of a channel block. Only the strides `frequency` and `re_im` are read.
template <class T>
struct TileLines {
  const T* from;
  T* to;  ///< may be `from`
  TileStrides from_strides, to_strides;
  /// Distance in elements from these lines to the lines that are read next, for prefetching; 0 prefetches nothing.
  std::ptrdiff_t ahead = 0;
};

template <class T>
class TilePlan;

/// Transforms with the prologues and epilogues of this folder, for the SIMD target in use. fft/tile-inl.hpp makes
/// others.
template <class T>
struct TileKernels {
  void (*forward_blocked)(const TilePlan<T>&, const BlockedTile<const T>&, T*, const TileStrides&, T*);
  void (*forward_plain)(const TilePlan<T>&, const PlainTile<const T>&, T*, const TileStrides&, T*);
  void (*inverse_blocked)(const TilePlan<T>&, T*, const TileStrides&, const BlockedTile<T>&, const TileStore<T>&, T*);
  void (*inverse_plain)(const TilePlan<T>&, T*, const TileStrides&, const PlainTile<T>&, const TileStore<T>&, T*);
};

/// Returns the kernels of the current SIMD target. Plans call this when they are made.
template <class T>
TileKernels<T> tile_kernels() noexcept;

/// A transform of tiles of one extent. Immutable; execution is thread-safe and allocates nothing.
template <class T>
class TilePlan {
 public:
  /// Only the first `support` voxels per axis of the space side are not zero (forward) or are written (inverse). Lines
  /// outside are not transformed. Throws InvalidArgument unless 1 <= support <= extent <= 64 on each axis.
  TilePlan(const Extent3& extent, const Extent3& support);

  /// Computes the unnormalised r2c transform spectrum(ky * X* + kx, kz) of the source inside the support. `scratch`
  /// holds scratch_bytes() and is aligned to 64 bytes. The buffers must not overlap.
  void forward(const BlockedTile<const T>& source, T* spectrum, const TileStrides& strides, T* scratch) const {
    kernels_.forward_blocked(*this, source, spectrum, strides, scratch);
  }
  void forward(const PlainTile<const T>& source, T* spectrum, const TileStrides& strides, T* scratch) const {
    kernels_.forward_plain(*this, source, spectrum, strides, scratch);
  }
  /// Computes the unnormalised c2r transform and multiplies it by `store.scale`. Overwrites the spectrum.
  void inverse(T* spectrum, const TileStrides& strides, const BlockedTile<T>& target, const TileStore<T>& store,
               T* scratch) const {
    kernels_.inverse_blocked(*this, spectrum, strides, target, store, scratch);
  }
  void inverse(T* spectrum, const TileStrides& strides, const PlainTile<T>& target, const TileStore<T>& store,
               T* scratch) const {
    kernels_.inverse_plain(*this, spectrum, strides, target, store, scratch);
  }

  /// Compute the last stage of forward() and the first stage of inverse(), for callers that run it separately.
  /// ForwardPlanes and InversePlanes of fft/tile-inl.hpp are the other stages. There are `count` lines, from_step and
  /// to_step elements apart. Lines of one point in place are left as they are.
  void forward_lines(const TileLines<T>& lines, index_t count, index_t from_step, index_t to_step, T* scratch) const;
  void inverse_lines(const TileLines<T>& lines, index_t count, index_t from_step, index_t to_step, T* scratch) const;

  const Extent3& extent() const noexcept { return extent_; }
  const Extent3& support() const noexcept { return support_; }
  index_t x_star() const noexcept { return extent_.x / 2 + 1; }
  index_t blocks() const noexcept { return extent_.y * x_star(); }       ///< frequency blocks
  index_t frequencies() const noexcept { return extent_.z * blocks(); }  ///< of all blocks
  std::size_t scratch_bytes() const noexcept;
  /// Returns 2.5 n log2 n for each lane.
  double flops() const noexcept;
  std::string describe() const;

  const Line<T>& line(int axis) const noexcept { return lines_[static_cast<std::size_t>(axis)]; }
  /// Return where the parts of the scratch begin, in elements. The first part, at 0, is a half-transformed plane.
  index_t rows_offset() const noexcept;
  index_t pair_offset() const noexcept;
  index_t line_offset() const noexcept;

 private:
  Extent3 extent_, support_;
  std::array<Line<T>, 3> lines_;  // along Z, Y, X
  TileKernels<T> kernels_;
};

}  // namespace convolume::fft
