#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fft/tile_plan.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "fft/tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::fft {
namespace HWY_NAMESPACE {
namespace {

template <class T>
TileKernels<T> Kernels() {
  return {[](const TilePlan<T>& plan, const BlockedTile<const T>& source, T* spectrum, const TileStrides& strides,
             T* scratch) { ForwardTile(plan, BlockedLoad<T>(plan, source), spectrum, strides, scratch); },
          [](const TilePlan<T>& plan, const PlainTile<const T>& source, T* spectrum, const TileStrides& strides,
             T* scratch) { ForwardTile(plan, PlainLoad<T>(plan, source), spectrum, strides, scratch); },
          [](const TilePlan<T>& plan, T* spectrum, const TileStrides& strides, const BlockedTile<T>& target,
             const TileStore<T>& store,
             T* scratch) { InverseTile(plan, spectrum, strides, BlockedStore<T>(plan, target, store), scratch); },
          [](const TilePlan<T>& plan, T* spectrum, const TileStrides& strides, const PlainTile<T>& target,
             const TileStore<T>& store,
             T* scratch) { InverseTile(plan, spectrum, strides, PlainStore<T>(plan, target, store), scratch); }};
}

}  // namespace

TileKernels<float> TileKernelsF32() { return Kernels<float>(); }
TileKernels<double> TileKernelsF64() { return Kernels<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::fft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>

#include <fmt/format.h>

#include "core/checked.hpp"

namespace convolume::fft {
namespace {

HWY_EXPORT(TileKernelsF32);
HWY_EXPORT(TileKernelsF64);

constexpr index_t largest_tile = 64;

const Extent3& checked(const Extent3& extent, const Extent3& support) {
  for (int axis = 0; axis < 3; ++axis) {
    if (extent[axis] < 1 || extent[axis] > largest_tile) {
      throw InvalidArgument(
          fmt::format("tile plan: extent {}; each axis has 1 to {} voxels", to_string(extent), largest_tile));
    }
    if (support[axis] < 1 || support[axis] > extent[axis]) {
      throw InvalidArgument(fmt::format("tile plan: support {} of a tile of {}; it must lie inside the tile",
                                        to_string(support), to_string(extent)));
    }
  }
  return extent;
}

}  // namespace

template <>
TileKernels<float> tile_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(TileKernelsF32)();
}
template <>
TileKernels<double> tile_kernels() noexcept {
  return HWY_DYNAMIC_DISPATCH(TileKernelsF64)();
}

template <class T>
TilePlan<T>::TilePlan(const Extent3& extent, const Extent3& support)
    : extent_(checked(extent, support)),
      support_(support),
      lines_{Line<T>(extent.z, PrimeAlgorithm::automatic), Line<T>(extent.y, PrimeAlgorithm::automatic),
             Line<T>(extent.x, PrimeAlgorithm::automatic)},
      kernels_(tile_kernels<T>()) {}

template <class T>
index_t TilePlan<T>::rows_offset() const noexcept {
  return round_up(2 * lines_[0].lanes() * blocks(), tile_lanes<T>);
}

// Behind the rows of a plane there is one row for each lane, in which prologues and epilogues assemble separate lanes.
template <class T>
index_t TilePlan<T>::pair_offset() const noexcept {
  return rows_offset() + round_up((extent_.y + 1) * extent_.x * lines_[0].lanes(), tile_lanes<T>);
}

template <class T>
index_t TilePlan<T>::line_offset() const noexcept {
  return pair_offset() + round_up(2 * 2 * lines_[0].lanes() * (extent_.x + 1), tile_lanes<T>);
}

template <class T>
std::size_t TilePlan<T>::scratch_bytes() const noexcept {
  index_t line = 0;
  for (const Line<T>& l : lines_) line = std::max(line, l.scratch_elements());
  // Whole cache lines, so that scratch areas may follow each other. Lines of narrow vectors may need less.
  return static_cast<std::size_t>(round_up(line_offset() + line, tile_lanes<T>)) * sizeof(T);
}

template <class T>
void TilePlan<T>::forward_lines(const TileLines<T>& lines, index_t count, index_t from_step, index_t to_step,
                                T* scratch) const {
  if (extent_.z == 1 && lines.from == lines.to) return;
  const TileStrides &from = lines.from_strides, &to = lines.to_strides;
  for (index_t lane = 0; lane < tile_lanes<T>; lane += lines_[0].lanes()) {
    lines_[0].complex_lines({lines.from + lane, from.frequency, from.re_im, lines.ahead},
                            {lines.to + lane, to.frequency, to.re_im}, scratch + line_offset(), support_.z, extent_.z,
                            count, from_step, to_step);
  }
}

template <class T>
void TilePlan<T>::inverse_lines(const TileLines<T>& lines, index_t count, index_t from_step, index_t to_step,
                                T* scratch) const {
  if (extent_.z == 1 && lines.from == lines.to) return;
  const TileStrides &from = lines.from_strides, &to = lines.to_strides;
  for (index_t lane = 0; lane < tile_lanes<T>; lane += lines_[0].lanes()) {
    // Real and imaginary parts are swapped, because these transforms are backward.
    const Points<const T> in{lines.from + lane, from.frequency, from.re_im, lines.ahead};
    const Points<T> out{lines.to + lane, to.frequency, to.re_im};
    lines_[0].complex_lines(in.swapped(), out.swapped(), scratch + line_offset(), extent_.z, support_.z, count,
                            from_step, to_step);
  }
}

template <class T>
double TilePlan<T>::flops() const noexcept {
  const auto n = static_cast<double>(extent_.z * extent_.y * extent_.x);
  return 2.5 * n * std::log2(n) * static_cast<double>(tile_lanes<T>);
}

template <class T>
std::string TilePlan<T>::describe() const {
  return fmt::format("tile {} support {} {}: z {} y {} x {}", to_string(extent_), to_string(support_),
                     lines_[0].kernels().target, lines_[0].describe(), lines_[1].describe(), lines_[2].describe());
}

template class TilePlan<float>;
template class TilePlan<double>;

}  // namespace convolume::fft
#endif  // HWY_ONCE
