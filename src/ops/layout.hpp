// Between the plain layout (N C Z Y X) and the blocked one (N C/16 Z Y X 16c; 8c for double).
#pragma once

#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// target = source, in the calling thread; in graphs append_copy does the same. Equal shapes, any layouts, any strides
/// with the channels of a voxel side by side; the pad lanes of a blocked target become zero. No aliasing. Throws
/// ShapeMismatch or InvalidArgument for views that do not serve.
template <class T>
void convert(const ConstView<T>& source, const View<T>& target);

}  // namespace convolume::ops
