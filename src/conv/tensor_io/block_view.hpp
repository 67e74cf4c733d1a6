// One channel block of a tensor in either layout, and whether results go past the caches.
#pragma once

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

}  // namespace convolume::conv
