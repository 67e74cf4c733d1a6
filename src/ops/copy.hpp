// Copies and sums of tensors and their crops: skip connections, concatenations, conversions between layouts.
#pragma once

#include <span>

#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// Throws ShapeMismatch where [offset, offset + extent) leaves `whole`.
void require_crop(const Extent3& whole, const Extent3& offset, const Extent3& extent);

/// The voxels [offset, offset + extent) of every channel. Throws ShapeMismatch where they leave the view.
template <class T>
View<T> crop(View<T> view, const Extent3& offset, const Extent3& extent) {
  require_crop(view.shape.extent, offset, extent);
  view.data += offset.z * view.stride[2] + offset.y * view.stride[3] + offset.x * view.stride[4];
  view.shape.extent = extent;
  return view;
}

// Views in this file are tensors or crops of them, of any layout; the channels of a voxel lie side by side. Pad lanes
// of a source are not read, those of a blocked target become zero. Sources and targets do not overlap unless said
// otherwise. A Ready counts the planes of whole tensors: where a view is cropped along Z, its tasks wait for all planes
// of the channels that they read, and what they return completes all planes together.

/// target = source, or += with `add`, channel by channel; between equal layouts or different ones. Equal shapes.
/// `ready` is of the source and of the target, as far as either has to be waited for.
template <class T>
Ready append_copy(TaskGraph& graph, const Ready& ready, const ConstView<T>& source, const View<T>& target, bool add);

/// y = the channels of all sources, in order. The sources have the samples and the extent of y, together as many
/// channels; `ready[k]` is of sources[k], counting its own channels. A task writes a whole channel block of y,
/// whichever sources it comes from.
template <class T>
Ready append_concat(TaskGraph& graph, std::span<const Ready> ready, std::span<const ConstView<T>> sources,
                    const View<T>& y);

/// target = the channels [first_channel, first_channel + target.shape.c) of the source, or += with `add`: the adjoint
/// of a concatenation. `ready` is of the source and `target_ready` of the target, each counting its own channels.
template <class T>
Ready append_slice(TaskGraph& graph, const Ready& ready, const ConstView<T>& source, index_t first_channel,
                   const View<T>& target, bool add, const Ready& target_ready = {});

/// y = a + b; equal shapes and layouts. y may be a or b. `ready` is of all three.
template <class T>
Ready append_add(TaskGraph& graph, const Ready& ready, const ConstView<T>& a, const ConstView<T>& b, const View<T>& y);

/// view = 0, pad lanes included.
template <class T>
Ready append_clear(TaskGraph& graph, const Ready& ready, const View<T>& view);

}  // namespace convolume::ops
