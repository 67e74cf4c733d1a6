// Between the plain layout (N C Z Y X) and the blocked one (N C/16 Z Y X 16c; 8c for double).
#pragma once

#include "convolume/tensor.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// The voxels of one channel block: blocked[v · B + c] = plain[c · channel_stride + v] for c < channels, 0 for the pad
/// lanes c in [channels, B), where B = channel_block. No aliasing. Thread-safe; allocates nothing.
template <class T>
void block_channels(const T* plain, index_t channel_stride, index_t channels, index_t voxels, T* blocked) noexcept;
/// The inverse; pad lanes are not read.
template <class T>
void unblock_channels(const T* blocked, index_t channels, index_t voxels, T* plain, index_t channel_stride) noexcept;

/// target = source, in the calling thread; in graphs append_copy does the same. Equal shapes, any layouts, any strides
/// with the channels of a voxel side by side; the pad lanes of a blocked target become zero. No aliasing. Throws
/// ShapeMismatch or InvalidArgument for views that do not serve.
template <class T>
void convert(const ConstView<T>& source, const View<T>& target);

}  // namespace convolume::ops
