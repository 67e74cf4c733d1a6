// Which tiles a streamed convolution cuts its tensors into, and what their transfers cost.
#pragma once

#include <cstddef>
#include <vector>

#include "convolume/streamed.hpp"

namespace convolume::conv {

/// Buffers begin at pages and take whole ones.
inline constexpr std::size_t page_bytes = 4096;

/// The tiles into which a problem is cut: y into tiles of samples, output channels and voxels; the input channels that
/// a tile sums into parts. With groups, a tile has whole groups of output channels, and their input channels.
struct StreamCut {
  ConvProblem problem;
  StreamTile tile;
  /// The whole tile: voxels of y that one tile of `fft_tiled` computes, also if fewer are wanted; otherwise 0. It also
  /// reads voxels of x that none of its results needs: those behind the last result, and those that meet a missing tap
  /// of the kernel's last phase. Their share of the results is zero but for rounding. So windows of x include them.
  Extent3 whole_tile{0, 0, 0};
  /// Output channels are the outermost loop. Otherwise they are the innermost, outside of the input channels only.
  bool channels_outermost = false;
  Shape5 x_chunk{1, 1, {1, 1, 1}};  ///< see StreamOptions
};

/// An execution of the engine: the boxes that it reads and writes, and what it computes.
struct StreamStep {
  TensorBox x, w, y;
  ConvProblem problem;
  bool first_part = true, last_part = true;  ///< of the input channels of this tile
};
/// Tiles of a cut. More of them would take memory of their own, up to 24 MiB, for the list of their boxes.
inline constexpr index_t most_stream_tiles = index_t{1} << 15;

/// Returns the steps in their order. The boxes of neighbouring steps are equal where nothing has to be read or written.
std::vector<StreamStep> steps_of(const StreamCut& cut);

/// Returns whether toom_cook can be cut along the channels of a problem without groups: it needs 16 channels of x and
/// of y, also in the last part.
bool cuts_channels_of_windows(const ConvProblem& problem);

/// Where the engine of a plan can cut its tensors without changing bits.
struct StreamUnits {
  StreamTile tile;                  ///< extents of tiles are multiples of these, or cover the whole axis
  Extent3 whole_tile{0, 0, 0};      ///< see StreamCut
  Shape5 x_chunk{1, 1, {1, 1, 1}};  ///< see StreamOptions
};
/// Returns the units without chunks.
StreamUnits units_of(const ConvPlan& plan);
/// Returns the tile, rounded up to units and down to the problem. Throws InvalidArgument if an extent is not positive,
/// or if all that a tile reads is padding.
StreamTile rounded(const ConvProblem& problem, const StreamUnits& units, StreamTile tile);

/// What does not depend on the tile.
struct StreamTerms {
  StreamPrices prices;
  int buffers = 2;               ///< of x and y, and of w if its tiles are large
  double compute_seconds = 0;    ///< of the whole problem, on all threads
  double prepare_seconds = 0;    ///< to prepare all weights once, on all threads
  double prepared_bytes = 0;     ///< of all prepared weights
  std::size_t engine_bytes = 0;  ///< working memory of the engine
};

/// Returns the costs of a cut. `peak_bytes` includes StreamTerms::engine_bytes and a share of prepared_bytes.
StreamCosts costs_of(const StreamCut& cut, const StreamTerms& terms);

/// Returns the cheapest cut whose peak_bytes are at most `memory`, or the cut of the least peak_bytes if none is.
/// Splits input channels only if `may_split` and if nothing else fits, because that changes the rounding.
/// Deterministic.
StreamCut cheapest_cut(const ConvProblem& problem, const StreamUnits& units, const StreamTerms& terms,
                       std::size_t memory, bool may_split);

}  // namespace convolume::conv
