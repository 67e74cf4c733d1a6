// Conversion between the plain layout (N C Z Y X) and the blocked layout (N C/16 Z Y X 16c; 8c for double).
#pragma once

#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// Computes target = source in the calling thread, for code inside of a task; in graphs, append_copy does the same.
/// Shapes are equal; layouts and strides are arbitrary, but the channels of a voxel are contiguous. Pad lanes of a
/// blocked target become zero. No aliasing. Throws ShapeMismatch or InvalidArgument for unsuitable views.
template <class T>
void convert(const ConstView<T>& source, const View<T>& target);

}  // namespace convolume::ops
