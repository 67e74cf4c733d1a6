// The inner loop of the weight gradient: sums over voxels for pairs of channels. Registers hold the sums.
#pragma once

#include <cstddef>

#include "conv/taps/tap_geometry.hpp"
#include "conv/taps/tap_steps.hpp"

namespace convolume::conv {

/// One tap of a ChannelProduct. Voxel i of dy meets the voxel of x that lies `x` elements behind i times the strides of
/// x. Voxels of dy outside of `inside` meet padding, which is not read. Its sums begin at `sums`, in elements.
struct ChannelTap {
  std::ptrdiff_t x = 0;
  Box inside;
  std::ptrdiff_t sums = 0;
};

/// Voxels that a product prefetches while it runs: one cache line for each voxel of dy.
template <class T>
struct FetchedBox {
  const T* data = nullptr;
  BoxStrides strides;
};

/// Computes, for each tap, sums[channel](lane) = start + sum over voxels i of dy of x[i](channel) * dy[i](lane), for
/// `columns` blocks of lanes. `start` is the contents of sums (if `add`), or 0. The products of a tap's voxels are
/// summed in the order of the voxels before start is added. This order does not depend on which taps and channels are
/// summed together, so the bits do not either. The sums of neighbouring channels lie 64 bytes apart.
template <class T>
struct ChannelProduct {
  const T* x;            ///< blocks of channels, or a single channel whose voxels may lie side by side
  BoxStrides x_strides;  ///< between the voxels of x that neighbouring voxels of dy meet
  const T* dy;
  BoxStrides dy_strides;
  std::ptrdiff_t dy_column;  ///< between blocks of lanes
  T* sums;
  std::ptrdiff_t sums_column;  ///< between blocks of lanes
  const ChannelTap* taps;
  index_t tap_count;
  index_t channels, columns;
  bool add;
  const FetchedBox<T>* next;  ///< what may be prefetched, in this order
  index_t next_count;
};

/// Computes a product. Returns how many of the boxes `next` it has prefetched, the first ones first. Thread-safe;
/// allocates nothing. T is float or double.
template <class T>
using ChannelKernel = index_t (*)(const ChannelProduct<T>& product);
/// Returns the kernel of the current SIMD target. Plans call this when they are made.
template <class T>
ChannelKernel<T> channel_kernel() noexcept;

}  // namespace convolume::conv
