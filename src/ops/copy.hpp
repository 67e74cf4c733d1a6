// Copies and sums of tensors and their crops: skip connections, concatenations, layout conversions.
#pragma once

#include <span>

#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// Throws ShapeMismatch if [offset, offset + extent) is not inside `whole`.
void require_crop(const Extent3& whole, const Extent3& offset, const Extent3& extent);

/// Returns the voxels [offset, offset + extent) of every channel. Throws ShapeMismatch if they are not inside the view.
template <class T>
View<T> crop(View<T> view, const Extent3& offset, const Extent3& extent) {
  require_crop(view.shape.extent, offset, extent);
  view.data += offset.z * view.stride[2] + offset.y * view.stride[3] + offset.x * view.stride[4];
  view.shape.extent = extent;
  return view;
}

// Views in this file are tensors or crops of tensors, of any layout; the channels of a voxel are contiguous. Pad lanes
// of a source are not read; pad lanes of a blocked target become zero. Sources and targets do not overlap unless stated
// otherwise. A Ready counts the planes of whole tensors. If a view is cropped along Z, its tasks wait for all planes of
// the channels that they read, and the Ready that they return completes all planes together.

/// Appends target = source, or target += source if `add`. Shapes are equal, layouts may differ. `ready` covers the
/// source and the target, as far as tasks must wait for them.
template <class T>
Ready append_copy(TaskGraph& graph, const Ready& ready, const ConstView<T>& source, const View<T>& target, bool add);

/// Appends y = the concatenation of the channels of all sources, in order. The sources have the samples and the extent
/// of y, and together as many channels as y. `ready[k]` belongs to sources[k] and counts its channels. One task writes
/// a whole channel block of y, even if it comes from several sources.
template <class T>
Ready append_concat(TaskGraph& graph, std::span<const Ready> ready, std::span<const ConstView<T>> sources,
                    const View<T>& y);

/// Appends target = the channels [first_channel, first_channel + target.shape.c) of the source, or target += them if
/// `add`. This is the adjoint of a concatenation. `ready` belongs to the source and `target_ready` to the target. Each
/// counts its own channels.
template <class T>
Ready append_slice(TaskGraph& graph, const Ready& ready, const ConstView<T>& source, index_t first_channel,
                   const View<T>& target, bool add, const Ready& target_ready = {});

/// Appends y = a + b for equal shapes and layouts. y may be a or b. `ready` covers all three.
template <class T>
Ready append_add(TaskGraph& graph, const Ready& ready, const ConstView<T>& a, const ConstView<T>& b, const View<T>& y);

/// Appends view = 0, pad lanes included.
template <class T>
Ready append_clear(TaskGraph& graph, const Ready& ready, const View<T>& view);

}  // namespace convolume::ops
