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

/// One feature map, dense: y = the maximum of each window, taps = its position in the window, linear in (z, y, x). Of
/// equal maxima the first in that order is taken. A NaN in a window is its maximum; of several, the last is taken
/// (as in PyTorch). `output` is pooled_extent(input, pool). Nothing may alias. Thread-safe; allocates nothing.
template <class T>
void max_pool_forward(const MaxPool& pool, const Extent3& input, const Extent3& output, const T* x, T* y,
                      std::uint8_t* taps) noexcept;

/// One feature map: dx = 0, or as it is with `add`; then dx[where the maximum was] += dy, in the order of the outputs.
template <class T>
void max_pool_backward(const MaxPool& pool, const Extent3& input, const Extent3& output, const T* dy,
                       const std::uint8_t* taps, T* dx, bool add) noexcept;

/// x is N C Z Y X, y and taps N C and the pooled extent; dense feature maps. One task per feature map.
template <class T>
Ready append_max_pool_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const View<T>& y,
                              const View<std::uint8_t>& taps, const MaxPool& pool);

/// dx has the shape of the forward x; taps are what the forward wrote for it.
template <class T>
Ready append_max_pool_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& dy,
                               const View<const std::uint8_t>& taps, const View<T>& dx, const MaxPool& pool, bool add);

}  // namespace convolume::ops
