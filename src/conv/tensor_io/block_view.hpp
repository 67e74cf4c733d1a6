// Views of one channel block of a tensor in either layout. Decides when results are written with non-temporal stores.
#pragma once

#include <type_traits>

#include "convolume/tensor.hpp"
#include "fft/tile_plan.hpp"

namespace convolume::conv {

/// One channel block of one sample: `channels` (1 to channel_block) feature maps. Strides are in elements, between
/// channels (plain layout), planes, rows and voxels. Each voxel of a blocked tensor has 64 bytes.
template <class T>
struct BlockView {
  T* data = nullptr;  ///< voxel 0 of the first channel
  Extent3 extent{};
  index_t channels = 0, channel_stride = 0, plane_stride = 0, row_stride = 0, voxel_stride = 1;
  bool blocked = false;

  /// Returns whether the voxels of a row lie side by side.
  bool dense_rows() const noexcept {
    return voxel_stride == (blocked ? fft::tile_lanes<std::remove_const_t<T>> : index_t{1});
  }
};

/// Returns the channels [first, first + channel_block) of a sample. If the tensor is blocked, its stride[1] is the step
/// between channel blocks.
template <class T>
BlockView<T> block_of(const View<T>& tensor, Layout layout, index_t n, index_t first);

/// Returns the size in bytes from which a tensor is so large that the caches would hold little of it when it is read.
/// The machine model decides. The query is slow, so callers store the result.
index_t non_temporal_from();
/// Returns whether results that fill a tensor once are written with non-temporal stores: all rows of the tensor are
/// aligned to 64 bytes, it has no gaps between the voxels of a row, and it has more than `from` bytes (see
/// non_temporal_from()). This does not affect rounding.
template <class T>
bool writes_non_temporal(const View<T>& target, index_t from);

}  // namespace convolume::conv
