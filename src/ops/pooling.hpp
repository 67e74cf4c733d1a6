// Max-pooling and max-filtering.
#pragma once

#include <cstdint>

#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// A stride of 1 is the max-filtering of ZNN; with a dilation, the pooling of a sparse ("skip-kernel") net.
struct MaxPool {
  Extent3 window = Extent3::all(2), stride = Extent3::all(2), dilation = Extent3::all(1);
  friend constexpr bool operator==(const MaxPool&, const MaxPool&) = default;
};

/// Extent of the output: per axis, the number of positions at which the whole dilated window lies inside the input.
/// Throws InvalidArgument for a number that is not positive or a window of more than 256 voxels (the position of a
/// maximum is a byte), ShapeMismatch where the window does not fit.
Extent3 pooled_extent(const Extent3& input, const MaxPool& pool);

/// y = the maximum of each window, taps = its position in the window, linear in (z, y, x). Of equal maxima the first in
/// that order is taken. A NaN in a window is its maximum; of several, the last is taken (as in PyTorch). x is N C Z Y
/// X, y has the pooled extent; one layout, dense channel blocks. taps holds a byte per element that a dense tensor of
/// y's shape and layout stores, stored_elements() of them, in that order. Nothing may alias.
template <class T>
Ready append_max_pool_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const View<T>& y,
                              Address<std::uint8_t> taps, const MaxPool& pool);

/// dx = 0, or as it is with `add`; then dx[where the maximum was] += dy, in the order of the outputs. dx has the shape
/// of the forward x; taps are what the forward wrote. `ready` is of dy and of dx, each counting its own planes.
template <class T>
Ready append_max_pool_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& dy,
                               Address<const std::uint8_t> taps, const View<T>& dx, const MaxPool& pool, bool add);

}  // namespace convolume::ops
