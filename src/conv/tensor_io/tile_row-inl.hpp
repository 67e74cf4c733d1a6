// Transforms rows of tiles (see tile_io.hpp) between spectra and plain tensors. A row of a tile has one or two cache
// lines, and in a plain tensor each channel has rows of its own. Tile by tile, each cache line would be read
// several times, and the channels of one voxel often lie in the same set of the cache. So each plane of a row of tiles
// is staged: whole rows are transposed into a blocked plane, once, and the tiles read this plane. Results go the
// opposite way. Compiled once per SIMD target.
#if defined(CONVOLUME_CONV_TILE_ROW_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_CONV_TILE_ROW_INL_HPP
#undef CONVOLUME_CONV_TILE_ROW_INL_HPP
#else
#define CONVOLUME_CONV_TILE_ROW_INL_HPP
#endif

#include <algorithm>
#include <optional>

#include "conv/tensor_io/tile_io-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {

/// The part of a plane that the tiles of a row read or write, as a blocked plane in scratch memory. Coordinates are
/// those of the tensor.
template <class T>
class StagedPlane {
 public:
  using Element = std::remove_const_t<T>;
  static constexpr index_t lanes = fft::tile_lanes<Element>;

  /// `first` is the first tile's origin and `window` the voxels of one tile. If `whole_lines`, the part begins and ends
  /// at voxels whose addresses may be those of cache lines, so it may be larger than the windows.
  StagedPlane(const BlockView<T>& plain, const Extent3& first, const Extent3& window, const TileRow& row,
              bool whole_lines, Element* memory)
      : plain_(plain), memory_(memory) {
    begin_.y = std::clamp<index_t>(first.y, 0, plain.extent.y);
    end_.y = std::clamp<index_t>(first.y + window.y, begin_.y, plain.extent.y);
    begin_.x = std::clamp<index_t>(first.x, 0, plain.extent.x);
    end_.x = std::clamp<index_t>(first.x + (row.count - 1) * row.step + window.x, begin_.x, plain.extent.x);
    if (!whole_lines || plain.voxel_stride != 1 || begin_.x == end_.x) return;
    begin_.x -= begin_.x % lanes;
    end_.x = std::min(plain.extent.x, (end_.x + lanes - 1) / lanes * lanes);
  }

  index_t width() const { return end_.x - begin_.x; }
  index_t elements() const { return (end_.y - begin_.y) * width() * lanes; }
  bool holds(index_t z) const { return z >= 0 && z < plain_.extent.z && width() > 0; }

  /// Returns the staged plane as a tensor in which all planes are this plane.
  BlockView<T> view() const {
    const index_t row_stride = width() * lanes;
    return {.data = memory_ - begin_.y * row_stride - begin_.x * lanes,
            .extent = plain_.extent,
            .channels = plain_.channels,
            .channel_stride = 1,
            .plane_stride = 0,
            .row_stride = row_stride,
            .voxel_stride = lanes,
            .blocked = true};
  }

  /// Loads plane z of the tensor and prefetches the plane after it.
  void Load(index_t z) const {
    const index_t ahead = z + 1 < plain_.extent.z ? plain_.plane_stride : 0;
    for (index_t y = begin_.y; y < end_.y; ++y) {
      for (index_t lane = 0; lane < lanes; lane += step()) {
        LoadPlainVoxels<Element>(plain_, Row(z, y), width(), lane, Staged(y) + lane, lanes, ahead);
      }
    }
  }

  /// Stores the staged plane into plane z of the tensor.
  void Store(index_t z, bool non_temporal) const {
    for (index_t y = begin_.y; y < end_.y; ++y) {
      for (index_t lane = 0; lane < plain_.channels; lane += step()) StoreRow(z, y, lane, non_temporal);
    }
  }

 private:
  static index_t step() { return static_cast<index_t>(hn::Lanes(d_)); }
  T* Row(index_t z, index_t y) const {
    return plain_.data + z * plain_.plane_stride + y * plain_.row_stride + begin_.x * plain_.voxel_stride;
  }
  Element* Staged(index_t y) const { return memory_ + (y - begin_.y) * width() * lanes; }

  void StoreRow(index_t z, index_t y, index_t lane, bool non_temporal) const {
    BlockRows<Element> rows{};
    Element* const first = Row(z, y) + lane * plain_.channel_stride;
    const Element* points = Staged(y) + lane;
    if (plain_.voxel_stride != 1) return StoreStepped(points, lane, first);
    // Lanes without a channel write to unused memory, which is aligned as the others are.
    Element* const unused = memory_ + elements() + begin_.x % lanes;
    for (index_t i = 0; i < step(); ++i) {
      rows[static_cast<std::size_t>(i)] = lane + i < plain_.channels ? first + i * plain_.channel_stride : unused;
    }
    if (non_temporal) {
      const index_t head = (lanes - begin_.x % lanes) % lanes;
      simd::HWY_NAMESPACE::StoreRowsNonTemporal(d_, points, lanes, rows, head, width());
    } else {
      simd::HWY_NAMESPACE::StoreRows(d_, points, lanes, rows.data(), 1, width());
    }
  }

  /// Stores a row whose voxels do not lie side by side in the tensor.
  void StoreStepped(const Element* points, index_t lane, Element* first) const {
    BlockRows<Element> rows{};
    for (index_t i = 0; i < step(); ++i) rows[static_cast<std::size_t>(i)] = memory_ + elements() + i * width();
    simd::HWY_NAMESPACE::StoreRows(d_, points, lanes, rows.data(), 1, width());
    for (index_t i = 0; i < step() && lane + i < plain_.channels; ++i) {
      Element* to = first + i * plain_.channel_stride;
      const Element* from = rows[static_cast<std::size_t>(i)];
      for (index_t x = 0; x < width(); ++x) to[x * plain_.voxel_stride] = from[x];
    }
  }

  static constexpr hn::ScalableTag<Element> d_{};
  BlockView<T> plain_;
  Element* memory_;
  Extent3 begin_{0, 0, 0}, end_{0, 0, 0};
};

/// Transforms planes of a row of tiles whose source is plain.
template <class T>
void TransformStaged(const fft::TilePlan<T>& plan, const TileSource<T>& source, const TileRow& row, T* spectrum,
                     const fft::TileStrides& strides, T* scratch) {
  T* memory = scratch + plan.scratch_bytes() / sizeof(T);
  const StagedPlane<const T> plane(source.block, source.origin, source.window, row, true, memory);
  TileSource<T> one = source;
  one.block = plane.view();
  std::optional<StagedPlane<const T>> y;
  if (source.activation != nullptr && !source.y.blocked) {
    y.emplace(source.y, source.origin, source.window, row, true, memory + plane.elements());
    one.y = y->view();
  }
  for (index_t z = 0; z < plan.support().z; ++z) {
    const index_t at = source.origin.z + (z + source.shift.z) % plan.extent().z;
    if (plane.holds(at)) {
      plane.Load(at);
      if (y) y->Load(at);
    }
    for (index_t i = 0; i < row.count; ++i) {
      one.origin.x = source.origin.x + i * row.step;
      const SourceLoad<T> load(plan, one);
      for (index_t lane = 0; lane < fft::tile_lanes<T>; lane += plan.line(0).lanes()) {
        tile::ForwardPlane(plan, load, z, lane, spectrum + i * row.spectrum, strides, scratch);
      }
    }
  }
}

/// Inverts planes of a row of tiles whose target is plain.
template <class T>
void InvertStaged(const fft::TilePlan<T>& plan, const T* spectrum, const fft::TileStrides& strides,
                  const TileTarget<T>& target, const TileRow& row, T* scratch) {
  const StagedPlane<T> plane(target.block, target.origin, target.window, row, false,
                             scratch + plan.scratch_bytes() / sizeof(T));
  TileTarget<T> one = target;
  one.block = plane.view();
  one.non_temporal = false;
  for (index_t z = 0; z < plan.support().z; ++z) {
    const index_t at = target.origin.z + z;
    if (z >= target.window.z || !plane.holds(at)) continue;
    if (target.add) plane.Load(at);
    for (index_t i = 0; i < row.count; ++i) {
      one.origin.x = target.origin.x + i * row.step;
      if (target.fresh != nullptr) one.fresh = target.fresh + i;
      const TargetStore<T> store(plan, one);
      for (index_t lane = 0; lane < fft::tile_lanes<T>; lane += plan.line(0).lanes()) {
        tile::InversePlane(plan, spectrum + i * row.spectrum, strides, store, z, lane, scratch);
      }
    }
    plane.Store(at, target.non_temporal);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
