#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/tensor_io/block_box.cpp"
#include "conv/tensor_io/block_box.hpp"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// This header comes after hwy/highway.h because it needs the macros of that header.
#include "hwy/cache_control.h"

#include "core/simd/rows-inl.hpp"
#include "ops/activation-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace rows = simd::HWY_NAMESPACE;

template <class T>
inline constexpr index_t block_lanes = fft::tile_lanes<T>;
template <class T>
using RowPointers = std::array<T*, static_cast<std::size_t>(block_lanes<T>)>;

template <class T>
T* Voxel(const BlockView<T>& block, index_t z, index_t y, index_t x) {
  const index_t step = block.blocked ? block_lanes<std::remove_const_t<T>> : 1;
  return block.data + z * block.plane_stride + y * block.row_stride + x * step;
}

/// Sets lanes without a channel to zero.
template <class T>
void ClearLanes(T* row, index_t channels, index_t count) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<index_t>(hn::Lanes(d));
  for (index_t lane = channels / lanes * lanes; lane < block_lanes<T>; lane += lanes) {
    const auto there = static_cast<std::size_t>(std::max<index_t>(0, channels - lane));
    const auto mask = hn::FirstN(d, there);
    for (index_t x = 0; x < count; ++x) {
      T* at = row + x * block_lanes<T> + lane;
      hn::StoreU(hn::IfThenElseZero(mask, hn::LoadU(d, at)), d, at);
    }
  }
}

/// While a row of a plain tensor is read, the row of the same channel that lies this many rows ahead is prefetched. The
/// rows of many channels are more streams than the hardware follows.
constexpr index_t prefetched_rows = 2;

/// Loads voxels that lie side by side. All of them are inside the tensor.
template <class T>
void LoadVoxels(const BlockView<const T>& block, const T* from, index_t count, T* to) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<index_t>(hn::Lanes(d));
  if (block.blocked) {
    for (index_t i = 0; i < count * block_lanes<T>; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
    return;
  }
  // Lanes without a channel repeat the last channel and are set to zero afterwards.
  RowPointers<T> pointers;
  for (index_t lane = 0; lane < block_lanes<T>; ++lane) {
    pointers[static_cast<std::size_t>(lane)] =
        const_cast<T*>(from) + std::min(lane, block.channels - 1) * block.channel_stride;
  }
  for (index_t lane = 0; lane < block_lanes<T>; lane += lanes) {
    rows::LoadRows(d, pointers.data() + lane, 1, to + lane, block_lanes<T>, count, prefetched_rows * block.row_stride);
  }
  if (block.channels < block_lanes<T>) ClearLanes(to, block.channels, count);
}

template <class T>
void LoadBox(const BoxSource<T>& s, T* to, T* row_scratch) {
  const Extent3& tensor = s.block.extent;
  const index_t first = std::clamp<index_t>(-s.origin.x, 0, s.extent.x);
  const index_t last = std::clamp<index_t>(tensor.x - s.origin.x, first, s.extent.x);
  for (index_t z = 0; z < s.extent.z; ++z) {
    for (index_t y = 0; y < s.extent.y; ++y, to += s.extent.x * block_lanes<T>) {
      const index_t at_z = s.origin.z + z, at_y = s.origin.y + y;
      const bool inside = at_z >= 0 && at_z < tensor.z && at_y >= 0 && at_y < tensor.y && first < last;
      if (!inside) {
        std::fill_n(to, s.extent.x * block_lanes<T>, T{0});
        continue;
      }
      T* row = to + first * block_lanes<T>;
      const index_t count = last - first, x = s.origin.x + first;
      std::fill(to, row, T{0});
      LoadVoxels(s.block, Voxel(s.block, at_z, at_y, x), count, row);
      std::fill(row + count * block_lanes<T>, to + s.extent.x * block_lanes<T>, T{0});
      if (s.activation == nullptr) continue;
      LoadVoxels(s.y, Voxel(s.y, at_z, at_y, x), count, row_scratch);
      ops::HWY_NAMESPACE::ActivationGradient(*s.activation, static_cast<const T*>(row_scratch),
                                             static_cast<const T*>(row), row, count * block_lanes<T>);
    }
  }
}

/// Stores a row into a plain tensor.
template <class T>
void StorePlain(const BoxTarget<T>& t, const T* row, T* first, T* staged) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<index_t>(hn::Lanes(d));
  const index_t count = t.extent.x;
  RowPointers<T> pointers;
  for (index_t lane = 0; lane < block_lanes<T>; ++lane) {
    const bool direct = !t.add && lane < t.block.channels;
    // With non-temporal stores, lanes without a channel need a row that is aligned as the others are.
    T* const unused = t.non_temporal ? staged + t.origin.x % block_lanes<T> : staged + lane * count;
    pointers[static_cast<std::size_t>(lane)] = direct ? first + lane * t.block.channel_stride : unused;
  }
  if (t.non_temporal && lanes == block_lanes<T>) {
    const index_t head = (lanes - t.origin.x % lanes) % lanes;
    return rows::StoreRowsNonTemporal(d, row, lanes, pointers, head, count);
  }
  for (index_t lane = 0; lane < std::min(t.block.channels, block_lanes<T>); lane += lanes) {
    rows::StoreRows(d, row + lane, block_lanes<T>, pointers.data() + lane, 1, count);
  }
  for (index_t lane = 0; lane < t.block.channels && t.add; ++lane) {
    T* to = first + lane * t.block.channel_stride;
    for (index_t x = 0; x < count; ++x) to[x] += staged[lane * count + x];
  }
}

template <class T>
void StoreBlocked(const BoxTarget<T>& t, const T* row, T* to) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<index_t>(hn::Lanes(d));
  for (index_t i = 0; i < t.extent.x * block_lanes<T>; i += lanes) {
    const auto value = hn::LoadU(d, row + i);
    hn::StoreU(t.add ? hn::Add(hn::LoadU(d, to + i), value) : value, d, to + i);
  }
}

template <class T>
void Activate(const Activation& activation, T* row, index_t channels, index_t count) {
  if (activation.kind != Activation::Kind::none) {
    ops::HWY_NAMESPACE::Activate(activation, static_cast<const T*>(row), row, count * block_lanes<T>);
  }
  if (channels < block_lanes<T>) ClearLanes(row, channels, count);
}

template <class T>
void StoreBox(T* from, const BoxTarget<T>& t, T* row_scratch) {
  for (index_t z = 0; z < t.extent.z; ++z) {
    for (index_t y = 0; y < t.extent.y; ++y, from += t.extent.x * block_lanes<T>) {
      T* to = Voxel(t.block, t.origin.z + z, t.origin.y + y, t.origin.x);
      Activate(t.activation, from, t.block.channels, t.extent.x);
      t.block.blocked ? StoreBlocked(t, from, to) : StorePlain(t, from, to, row_scratch);
    }
  }
  if (t.non_temporal) hwy::FlushStream();
}

template <class T>
void ActivateBox(const BoxTarget<T>& t) {
  for (index_t z = 0; z < t.extent.z; ++z) {
    for (index_t y = 0; y < t.extent.y; ++y) {
      Activate(t.activation, Voxel(t.block, t.origin.z + z, t.origin.y + y, t.origin.x), t.block.channels, t.extent.x);
    }
  }
}

}  // namespace

BoxKernels<float> BoxKernelsF32() { return {LoadBox<float>, StoreBox<float>, ActivateBox<float>}; }
BoxKernels<double> BoxKernelsF64() { return {LoadBox<double>, StoreBox<double>, ActivateBox<double>}; }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

HWY_EXPORT(BoxKernelsF32);
HWY_EXPORT(BoxKernelsF64);

template <>
BoxKernels<float> box_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(BoxKernelsF32)();
}
template <>
BoxKernels<double> box_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(BoxKernelsF64)();
}

}  // namespace convolume::conv
#endif  // HWY_ONCE
