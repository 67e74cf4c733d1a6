// Copies, sums and fills of strided sub-views: crops, concatenations, skip connections.
#pragma once

#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// Throws ShapeMismatch where [offset, offset + extent) leaves `whole`.
void require_crop(const Extent3& whole, const Extent3& offset, const Extent3& extent);
/// Throws ShapeMismatch where [begin, end) is not a range of `channels` channels.
void require_channels(index_t channels, index_t begin, index_t end);

/// The voxels [offset, offset + extent) of every feature map. Throws ShapeMismatch where they leave the view.
template <class T>
View<T> crop(View<T> view, const Extent3& offset, const Extent3& extent) {
  require_crop(view.shape.extent, offset, extent);
  view.data += offset.z * view.stride[2] + offset.y * view.stride[3] + offset.x * view.stride[4];
  view.shape.extent = extent;
  return view;
}

/// The channels [begin, end). Throws ShapeMismatch where the view has no such channels.
template <class T>
View<T> channels(View<T> view, index_t begin, index_t end) {
  require_channels(view.shape.c, begin, end);
  view.data += begin * view.stride[1];
  view.shape.c = end - begin;
  return view;
}

/// target = source, or += with `add`; one task per feature map. Equal shapes, an X stride of 1, any other strides; the
/// views do not overlap. `first_channel` is the channel of `ready` that channel 0 of the source stands for. The result
/// counts the channels of the target view from 0.
template <class T>
Ready append_copy(TaskGraph& graph, const Ready& ready, const ConstView<T>& source, const View<T>& target, bool add,
                  index_t first_channel = 0);

/// y = a + b; one task per feature map. Strides as above; y may be a or b.
template <class T>
Ready append_add(TaskGraph& graph, const Ready& ready, const ConstView<T>& a, const ConstView<T>& b, const View<T>& y);

/// view = value; one task per feature map. Strides as above.
template <class T>
Ready append_fill(TaskGraph& graph, const Ready& ready, const View<T>& view, std::type_identity_t<T> value);

}  // namespace convolume::ops
