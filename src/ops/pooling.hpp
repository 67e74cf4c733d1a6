// Max-pooling and max-filtering.
#pragma once

#include <cstdint>

#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// Options of max-pooling. With a stride of 1 it is the max-filtering of ZNN; with a dilation, it is the pooling of a
/// sparse ("skip-kernel") net.
struct MaxPool {
  Extent3 window = Extent3::all(2), stride = Extent3::all(2), dilation = Extent3::all(1);
  friend constexpr bool operator==(const MaxPool&, const MaxPool&) = default;
};

/// Returns the extent of the output: per axis, the number of positions at which the whole dilated window lies inside
/// the input. Throws InvalidArgument for a number that is not positive or a window of more than 256 voxels (an argmax
/// index is a byte), and ShapeMismatch if the window does not fit.
Extent3 pooled_extent(const Extent3& input, const MaxPool& pool);

/// Appends y = the maximum of each window, and taps = its argmax index, linear in (z, y, x). Among equal maxima, the
/// first one is taken. If a window contains NaN, the maximum is NaN; the last NaN is taken (as in PyTorch). x is N C Z
/// Y X, and y has the pooled extent. Both have the same layout and dense channel blocks. taps holds one byte for each
/// of the stored_elements() of a dense tensor with y's shape and layout, in the same order. No aliasing.
template <class T>
Ready append_max_pool_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const View<T>& y,
                              Address<std::uint8_t> taps, const MaxPool& pool);

/// Appends dx = 0, or keeps dx if `add`, and then dx[position of the maximum] += dy in the order of the outputs. dx has
/// the shape of the forward x; taps holds the argmax indices of the forward pass. `ready` covers dy and dx. Each counts
/// its own planes.
template <class T>
Ready append_max_pool_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& dy,
                               Address<const std::uint8_t> taps, const View<T>& dx, const MaxPool& pool, bool add);

}  // namespace convolume::ops
