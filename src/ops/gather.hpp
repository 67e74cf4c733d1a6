// One part of a tensor, written from the channels of others: what copies, concatenations and slices have in common.
#pragma once

#include <span>

#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// A source whose channel 0 is channel `first` of the target; negative where the target begins within the source.
template <class T>
struct Origin {
  View<const T> view;
  index_t first = 0;
};

/// Parts that can be written independently. A blocked voxel is written by one task. Channels of a plain target that
/// come out of blocked sources go together too, or a source's voxels would be read once per channel.
template <class T>
Cut gather_cut(std::span<const Origin<T>> origins, const View<T>& target);

/// target = the channels of the origins that fall into the part, or += with `add`; pad lanes of the target become zero.
/// The origins have the extent of the target and cover its channels once. No aliasing. Thread-safe; allocates nothing.
template <class T>
void gather(std::span<const Origin<T>> origins, const View<T>& target, const Part& part, bool add) noexcept;

}  // namespace convolume::ops
