// Between the plain layout (N C Z Y X) and the blocked one (N C/16 Z Y X 16c; 8c for double).
#pragma once

#include "convolume/scheduler.hpp"
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

/// A whole tensor with dense feature maps; `blocked` holds blocked_elements(shape).
template <class T>
void to_blocked(const ConstView<T>& plain, T* blocked);
template <class T>
void to_plain(const T* blocked, const View<T>& plain);

/// The same as tasks, one per (sample, channel block).
template <class T>
Ready append_to_blocked(TaskGraph& graph, const Ready& ready, const ConstView<T>& plain, T* blocked);
template <class T>
Ready append_to_plain(TaskGraph& graph, const Ready& ready, const T* blocked, const View<T>& plain);

}  // namespace convolume::ops
