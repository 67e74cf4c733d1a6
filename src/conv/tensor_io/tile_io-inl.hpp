// The prologues and epilogues of tile_io.hpp (see fft/tile-inl.hpp). Compiled once per SIMD target.
#if defined(CONVOLUME_CONV_TILE_IO_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_CONV_TILE_IO_INL_HPP
#undef CONVOLUME_CONV_TILE_IO_INL_HPP
#else
#define CONVOLUME_CONV_TILE_IO_INL_HPP
#endif

#include "conv/tensor_io/tile_io.hpp"
#include "fft/tile-inl.hpp"
#include "ops/activation-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace tile = fft::HWY_NAMESPACE;

inline constexpr std::ptrdiff_t largest_extent = 64;  ///< the largest extent of a TilePlan

template <class T>
using BlockRows = std::array<T*, hn::MaxLanes(hn::ScalableTag<T>())>;

/// Returns the voxels of [origin, origin + window) that lie inside the tensor, in coordinates of the window.
inline fft::TileBox WindowBox(const Extent3& origin, const Extent3& window, const Extent3& extent) {
  fft::TileBox box;
  for (int axis = 0; axis < 3; ++axis) {
    box.begin[axis] = std::clamp<index_t>(-origin[axis], 0, window[axis]);
    box.end[axis] = std::clamp<index_t>(extent[axis] - origin[axis], box.begin[axis], window[axis]);
  }
  return box;
}

/// Loads neighbouring voxels of a row of a plain tensor, for the lanes from `first_lane` on. Writes a vector of lanes
/// for each voxel, `step` elements apart. `ahead` is the distance in elements from each voxel to the voxel that is
/// prefetched with it; 0 prefetches nothing.
template <class T, class Block>
void LoadPlainVoxels(const Block& block, const T* from, index_t count, index_t first_lane, T* to, std::ptrdiff_t step,
                     std::ptrdiff_t ahead = 0) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  // Lanes without a channel repeat the last channel and are set to zero afterwards.
  BlockRows<T> rows{};
  for (std::ptrdiff_t lane = 0; lane < lanes; ++lane) {
    const index_t channel = std::min<index_t>(first_lane + lane, block.channels - 1);
    rows[static_cast<std::size_t>(lane)] = const_cast<T*>(from) + channel * block.channel_stride;
  }
  if (block.voxel_stride == 1) {
    simd::HWY_NAMESPACE::LoadRows(d, rows.data(), 1, to, step, count, ahead);
  } else {
    // Rows with gaps between voxels are copied into rows without gaps first.
    HWY_ALIGN T staged[hn::MaxLanes(hn::ScalableTag<T>()) * largest_extent];
    BlockRows<T> dense{};
    for (std::ptrdiff_t lane = 0; lane < lanes; ++lane) {
      dense[static_cast<std::size_t>(lane)] = staged + lane * largest_extent;
    }
    for (index_t x = 0; x < count; x += largest_extent) {
      const index_t part = std::min(count - x, largest_extent);
      for (std::ptrdiff_t lane = 0; lane < lanes; ++lane) {
        const T* row = rows[static_cast<std::size_t>(lane)] + x * block.voxel_stride;
        simd::HWY_NAMESPACE::CopyStepped(row, block.voxel_stride, part, dense[static_cast<std::size_t>(lane)]);
      }
      simd::HWY_NAMESPACE::LoadRows(d, dense.data(), 1, to + x * step, step, part);
    }
  }
  const index_t there = std::clamp<index_t>(block.channels - first_lane, 0, lanes);
  if (there == lanes) return;
  const auto mask = hn::FirstN(d, static_cast<std::size_t>(there));
  for (index_t x = 0; x < count; ++x) {
    hn::StoreU(hn::IfThenElseZero(mask, hn::LoadU(d, to + x * step)), d, to + x * step);
  }
}

template <class T>
class SourceLoad {
 public:
  SourceLoad(const fft::TilePlan<T>& plan, const TileSource<T>& source)
      : plan_(plan), source_(source), box_(WindowBox(source.origin, source.window, source.block.extent)) {}

  /// Returns what to prefetch: the next plane of the tile. If tiles have only one plane, it is the plane of the next
  /// tile.
  tile::PlanePrefetch<T> Next(index_t point, index_t lane) const {
    const bool single = source_.window.z == 1;
    // A staged plane (tile_row-inl.hpp) has no next plane, and is in the caches.
    if (!source_.block.blocked || source_.block.plane_stride == 0 || (single && !source_.next)) return {};
    const BlockView<const T>& block = single ? source_.next->block : source_.block;
    const Extent3& origin = single ? source_.next->origin : source_.origin;
    const index_t z = single ? 0 : WindowPlane(point + 1);
    const fft::TileBox box = single ? WindowBox(origin, source_.window, block.extent) : box_;
    if (z < box.begin.z || z >= box.end.z) return {};
    const T* first = Voxel(block, origin, z, box.begin.y, box.begin.x) + lane;
    const index_t half = (box.end.x - box.begin.x) / 2, step = block.voxel_stride;
    return {{first, block.row_stride, step, half},
            {first + half * step, step, block.row_stride, box.end.y - box.begin.y}};
  }

  tile::TileRows<const T> Rows(index_t point, index_t lane, T* buffer) const {
    const index_t z = WindowPlane(point);
    if (!HoldsPlane(z)) return {nullptr, 0, 0, 0, 0};
    const Extent3& n = plan_.extent();
    if (source_.block.blocked && source_.activation == nullptr && BeginsInPlace()) {
      const T* plane = Voxel(source_.block, z, 0, 0) + lane;
      return {plane, source_.block.voxel_stride, source_.block.row_stride, std::min(box_.end.y, plan_.support().y),
              box_.end.x};
    }
    const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d_));
    for (index_t y = 0; y < plan_.support().y; ++y) {
      T* row = buffer + y * n.x * lanes;
      const index_t window_y = (y + source_.shift.y) % n.y;
      if (window_y < box_.begin.y || window_y >= box_.end.y) {
        std::fill(row, row + n.x * lanes, T{0});
        continue;
      }
      LoadRow(source_.block, z, window_y, lane, row);
      if (source_.activation == nullptr || DifferentiatesInPlace()) continue;
      T* outputs = buffer + n.y * n.x * lanes;
      LoadRow(source_.y, z, window_y, lane, outputs);
      ops::HWY_NAMESPACE::ActivationGradient(*source_.activation, outputs, static_cast<const T*>(row), row,
                                             n.x * lanes);
    }
    return {buffer, lanes, n.x * lanes, plan_.support().y, n.x};
  }

 private:
  index_t WindowPlane(index_t point) const { return (point + source_.shift.z) % plan_.extent().z; }
  bool HoldsPlane(index_t z) const { return z >= box_.begin.z && z < box_.end.z; }
  /// Returns whether the rows of a plane can be read in the tensor itself: the window begins at point 0, and all points
  /// after its end are zero.
  bool BeginsInPlace() const {
    return source_.shift.y == 0 && source_.shift.x == 0 && box_.begin.y == 0 && box_.begin.x == 0 &&
           (box_.end.x == plan_.extent().x || plan_.line(2).has_real());
  }
  /// Returns whether rows of dy and y lie in the tensors in the form that vectors need. Then the activation's gradient
  /// reads the tensors directly, and nothing is copied first.
  bool DifferentiatesInPlace() const {
    return source_.activation != nullptr && source_.block.blocked && hn::Lanes(d_) == fft::tile_lanes<T> &&
           source_.block.dense_rows() && source_.y.dense_rows();
  }
  const T* Voxel(const BlockView<const T>& block, index_t z, index_t y, index_t x) const {
    return Voxel(block, source_.origin, z, y, x);
  }
  static const T* Voxel(const BlockView<const T>& block, const Extent3& origin, index_t z, index_t y, index_t x) {
    return block.data + (origin.z + z) * block.plane_stride + (origin.y + y) * block.row_stride +
           (origin.x + x) * block.voxel_stride;
  }

  /// Loads row (z, y) of the window, rotated by the shift.
  void LoadRow(const BlockView<const T>& block, index_t z, index_t y, index_t lane, T* row) const {
    const index_t n = plan_.extent().x, shift = source_.shift.x;
    const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d_));
    // Loads the part from the shift on, then the part before the shift. Each part may have zeros at both ends.
    for (const auto [begin, end, to] : {std::array{shift, n, index_t{0}}, std::array{index_t{0}, shift, n - shift}}) {
      const index_t first = std::clamp(box_.begin.x, begin, end), last = std::clamp(box_.end.x, first, end);
      T* at = row + to * lanes;
      std::fill(at, at + (first - begin) * lanes, T{0});
      T* voxels = at + (first - begin) * lanes;
      if (first < last && DifferentiatesInPlace()) {
        ops::HWY_NAMESPACE::ActivationGradient(*source_.activation, Voxel(source_.y, z, y, first),
                                               Voxel(block, z, y, first), voxels, (last - first) * lanes);
      } else if (first < last) {
        LoadVoxels(block, Voxel(block, z, y, first), last - first, lane, voxels);
      }
      std::fill(at + (last - begin) * lanes, at + (end - begin) * lanes, T{0});
    }
  }

  void LoadVoxels(const BlockView<const T>& block, const T* from, index_t count, index_t first_lane, T* to) const {
    const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d_));
    if (block.blocked && block.dense_rows()) {
      for (index_t x = 0; x < count; ++x) {
        hn::StoreU(hn::LoadU(d_, from + x * fft::tile_lanes<T> + first_lane), d_, to + x * lanes);
      }
      return;
    }
    if (block.blocked) {
      const index_t step = block.voxel_stride;
      for (index_t x = 0; x < count; ++x) {
        hn::StoreU(hn::LoadU(d_, from + x * step + first_lane), d_, to + x * lanes);
      }
      return;
    }
    LoadPlainVoxels(block, from, count, first_lane, to, lanes);
  }

  static constexpr hn::ScalableTag<T> d_{};
  const fft::TilePlan<T>& plan_;
  const TileSource<T>& source_;
  fft::TileBox box_;
};

template <class T>
class TargetStore {
 public:
  TargetStore(const fft::TilePlan<T>& plan, const TileTarget<T>& target)
      : plan_(plan), target_(target), box_(WindowBox(target.origin, target.window, target.block.extent)) {}

  tile::PlanePrefetch<T> Next(index_t, index_t) const { return {}; }
  void Store(index_t z, index_t lane, const T* buffer) const {
    if (z < box_.begin.z || z >= box_.end.z) return;
    const index_t n = plan_.extent().x;
    const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d_));
    const TileEpilogue epilogue(target_, lane);
    T* staged = const_cast<T*>(buffer) + plan_.extent().y * n * lanes;  // behind the plane, where the scratch has room
    for (index_t y = box_.begin.y; y < box_.end.y; ++y) {
      T* row = const_cast<T*>(buffer) + (y * n + box_.begin.x) * lanes;
      const index_t count = box_.end.x - box_.begin.x;
      if (!epilogue.in_one_sweep) Finish(epilogue, row, count);
      const auto [begin, end] = FreshPart(z, y);
      if (target_.add && begin > 0) StorePart(z, y, lane, row, {0, begin, true}, epilogue, staged);
      if (!target_.add || begin < end) StorePart(z, y, lane, row, {begin, end, false}, epilogue, staged);
      if (target_.add && end < count) StorePart(z, y, lane, row, {end, count, true}, epilogue, staged);
    }
  }

 private:
  /// A part of a row of the box.
  struct Part {
    index_t begin, end;
    bool add;
  };

  /// Returns which voxels of row (z, y) of the box are overwritten. The other voxels are added to.
  std::array<index_t, 2> FreshPart(index_t z, index_t y) const {
    const index_t count = box_.end.x - box_.begin.x;
    if (!target_.add) return {0, count};
    if (target_.fresh == nullptr) return {count, count};
    const fft::TileBox& fresh = *target_.fresh;
    if (z < fresh.begin.z || z >= fresh.end.z || y < fresh.begin.y || y >= fresh.end.y) return {count, count};
    const index_t begin = std::clamp<index_t>(fresh.begin.x - box_.begin.x, 0, count);
    return {begin, std::clamp<index_t>(fresh.end.x - box_.begin.x, begin, count)};
  }

  T* Voxel(index_t z, index_t y, index_t x) const {
    const BlockView<T>& block = target_.block;
    return block.data + (target_.origin.z + z) * block.plane_stride + (target_.origin.y + y) * block.row_stride +
           (target_.origin.x + box_.begin.x + x) * block.voxel_stride;
  }

  using V = hn::Vec<hn::ScalableTag<T>>;
  /// Applies the scale, the bias and, if requested, ReLU. Lanes without a channel become zero. In all other
  /// cases Finish() applies the activation.
  struct TileEpilogue {
    TileEpilogue(const TileTarget<T>& target, index_t first_lane) {
      const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d_));
      const index_t there = std::clamp<index_t>(target.block.channels - first_lane, 0, lanes);
      HWY_ALIGN T bias[hn::MaxLanes(hn::ScalableTag<T>())] = {};
      for (index_t i = 0; i < there && target.bias != nullptr; ++i) bias[i] = target.bias[first_lane + i];
      shift = hn::Load(d_, bias);
      scale = hn::Set(d_, target.scale);
      channels = hn::FirstN(d_, static_cast<std::size_t>(there));
      relu = target.activation.kind == Activation::Kind::relu;
      in_one_sweep = target.block.blocked && (relu || target.activation.kind == Activation::Kind::none);
    }
    template <bool Relu>
    HWY_INLINE V Apply(V value) const {
      value = hn::IfThenElseZero(channels, hn::MulAdd(value, scale, shift));
      return Relu ? hn::IfThenZeroElse(hn::Le(value, hn::Zero(d_)), value) : value;  // keeps NaN
    }
    V shift, scale;
    hn::Mask<hn::ScalableTag<T>> channels;
    bool relu, in_one_sweep;  ///< in_one_sweep: the epilogue is complete after Apply() and runs while values are stored
  };

  void StorePart(index_t z, index_t y, index_t lane, const T* row, const Part& part, const TileEpilogue& epilogue,
                 T* staged) const {
    row += part.begin * static_cast<index_t>(hn::Lanes(d_));
    T* to = Voxel(z, y, part.begin) + lane;
    if (!target_.block.blocked) {
      StorePlain(z, y, lane, row, part, staged);
    } else if (!epilogue.in_one_sweep) {
      StoreBlocked(row, to, part, [](V value) HWY_ATTR { return value; });
    } else if (epilogue.relu) {
      StoreBlocked(row, to, part, [e = epilogue](V value) HWY_ATTR { return e.template Apply<true>(value); });
    } else {
      StoreBlocked(row, to, part, [e = epilogue](V value) HWY_ATTR { return e.template Apply<false>(value); });
    }
  }

  void Finish(const TileEpilogue& epilogue, T* row, index_t count) const {
    const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d_));
    for (index_t x = 0; x < count; ++x) {
      hn::StoreU(epilogue.template Apply<false>(hn::LoadU(d_, row + x * lanes)), d_, row + x * lanes);
    }
    if (target_.activation.kind == Activation::Kind::none) return;
    ops::HWY_NAMESPACE::Activate(target_.activation, static_cast<const T*>(row), row, count * lanes);
    for (index_t x = 0; x < count; ++x) {
      hn::StoreU(hn::IfThenElseZero(epilogue.channels, hn::LoadU(d_, row + x * lanes)), d_, row + x * lanes);
    }
  }

  template <class End>
  HWY_INLINE void StoreBlocked(const T* row, T* to, const Part& part, const End& end) const {
    const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d_));
    const index_t count = part.end - part.begin, step = target_.block.voxel_stride;
    // Non-temporal stores of narrower vectors would leave cache lines half written.
    if (target_.non_temporal && lanes == fft::tile_lanes<T>) {
      for (index_t x = 0; x < count; ++x) hn::Stream(end(hn::LoadU(d_, row + x * lanes)), d_, to + x * step);
    } else if (part.add) {
      for (index_t x = 0; x < count; ++x, to += step) {
        hn::StoreU(hn::Add(hn::LoadU(d_, to), end(hn::LoadU(d_, row + x * lanes))), d_, to);
      }
    } else {
      for (index_t x = 0; x < count; ++x, to += step) hn::StoreU(end(hn::LoadU(d_, row + x * lanes)), d_, to);
    }
  }

  void StorePlain(index_t z, index_t y, index_t first_lane, const T* row, const Part& part, T* staged) const {
    const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d_));
    const index_t there = std::clamp<index_t>(target_.block.channels - first_lane, 0, lanes);
    const index_t count = part.end - part.begin, step = target_.block.voxel_stride;
    const bool in_place = !part.add && step == 1;
    T* const first = Voxel(z, y, part.begin) + first_lane * target_.block.channel_stride;
    BlockRows<T> rows{};
    for (std::ptrdiff_t lane = 0; lane < lanes; ++lane) {
      const bool direct = in_place && lane < there;
      rows[static_cast<std::size_t>(lane)] =
          direct ? first + lane * target_.block.channel_stride : staged + lane * plan_.extent().x;
    }
    simd::HWY_NAMESPACE::StoreRows(d_, row, lanes, rows.data(), 1, count);
    for (std::ptrdiff_t lane = 0; lane < there && !in_place; ++lane) {
      T* to = first + lane * target_.block.channel_stride;
      const T* from = staged + lane * plan_.extent().x;
      if (step == 1) {
        for (index_t x = 0; x < count; ++x) to[x] += from[x];
      } else {
        for (index_t x = 0; x < count; ++x) to[x * step] = from[x] + (part.add ? to[x * step] : T{0});
      }
    }
  }

  static constexpr hn::ScalableTag<T> d_{};
  const fft::TilePlan<T>& plan_;
  const TileTarget<T>& target_;
  fft::TileBox box_;
};

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
