// Writes one part of a tensor from channels of other tensors. Copies, concatenations and slices share this code.
#pragma once

#include <span>

#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// A source. Its channel 0 is channel `first` of the target; `first` is negative if the target begins within the
/// source.
template <class T>
struct Origin {
  View<const T> view;
  index_t first = 0;
};

/// Divides the target into parts that can be written independently. One task writes all channels of a blocked voxel.
/// Channels of a plain target that come from blocked sources are also written together. Otherwise the voxels of a
/// source would be read once per channel.
template <class T>
Cut gather_cut(std::span<const Origin<T>> origins, const View<T>& target);

/// Writes target = the channels of the origins that fall into the part, or adds them if `add`. Pad lanes of the target
/// become zero. The origins have the extent of the target and cover each of its channels once. No aliasing.
/// Thread-safe; allocates nothing.
template <class T>
void gather(std::span<const Origin<T>> origins, const View<T>& target, const Part& part, bool add) noexcept;

}  // namespace convolume::ops
