// Transforms of tiles. They are templates over their prologue (which loads voxels) and their epilogue (which stores
// voxels). A prologue is an object with the function
//   TileRows<const T> Rows(index_t z, index_t lane, T* buffer) const
// It returns the position of the rows of plane z as points (a vector of lanes per voxel), for the lanes from `lane` on.
// It may first assemble them in `buffer`, which holds one plane with dense rows and voxels. No rows stand for zeros. An
// epilogue is an object with the function
//   void Store(index_t z, index_t lane, const T* buffer) const
// It stores such a plane. Both also have the function
//   PlanePrefetch<T> Next(index_t z, index_t lane) const
// It names the memory that the next Rows() or Store() will access. This file is compiled once per SIMD target.
#if defined(CONVOLUME_FFT_TILE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVOLUME_FFT_TILE_INL_HPP
#undef CONVOLUME_FFT_TILE_INL_HPP
#else
#define CONVOLUME_FFT_TILE_INL_HPP
#endif

#include <algorithm>

#include "core/simd/rows-inl.hpp"
#include "fft/codelets-inl.hpp"
#include "fft/tile_plan.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::fft {
namespace HWY_NAMESPACE {

using simd::HWY_NAMESPACE::CopyStepped;
using simd::HWY_NAMESPACE::LoadRows;
using simd::HWY_NAMESPACE::StoreRows;

/// Rows of a plane; steps in elements. Voxels from `points` on and rows from `rows` on are zero. If rows are
/// transformed in pairs, `points` is the whole row.
template <class T>
struct TileRows {
  T* data;
  std::ptrdiff_t voxel_step, row_step;
  index_t rows, points;
};

/// Memory that is needed next. The passes along X and along Y prefetch it.
template <class T>
struct PlanePrefetch {
  Prefetch<T> along_x, along_y;
};
/// Transforms real rows to half spectra, dense. Rows whose length has a prime factor above 13 are transformed in pairs.
template <class T>
void TransformRows(const TilePlan<T>& plan, const TileRows<const T>& rows, const Prefetch<T>& next, T* plane,
                   T* scratch) {
  const Line<T>& line = plan.line(2);
  const std::ptrdiff_t lanes = line.lanes(), point = 2 * lanes, row = plan.x_star() * point;
  T* line_scratch = scratch + plan.line_offset();
  const index_t count = rows.rows;
  std::fill(plane + count * row, plane + plan.support().y * row, T{0});
  if (line.has_real()) {
    line.real_pruned(rows.data, rows.voxel_step, rows.points, {plane, point, lanes}, line_scratch, count, rows.row_step,
                     row, next);
    return;
  }
  T* pair = scratch + plan.pair_offset();
  for (index_t y = 0; y < count; y += 2) {
    const bool single = y + 1 == count;  // a pair of the same row twice
    line.complex({rows.data + y * rows.row_step, rows.voxel_step, single ? 0 : rows.row_step}, {pair, point, lanes},
                 line_scratch);
    T* second = single ? pair + plan.extent().x * point : plane + (y + 1) * row;
    line.kernels().split_pair(pair, plan.extent().x, plane + y * row, second);
  }
}

/// Inverts TransformRows except for a factor X. `buffer` receives dense rows.
template <class T>
void InvertRows(const TilePlan<T>& plan, const T* plane, const Prefetch<T>& next, T* buffer, T* scratch) {
  const Line<T>& line = plan.line(2);
  const std::ptrdiff_t lanes = line.lanes(), point = 2 * lanes, row = plan.x_star() * point;
  const std::ptrdiff_t n = plan.extent().x, out_row = n * lanes;
  T* line_scratch = scratch + plan.line_offset();
  const index_t count = plan.support().y;
  if (line.has_real()) {
    line.hermitian({plane, point, lanes}, buffer, lanes, line_scratch, count, row, out_row, next);
    return;
  }
  T* pair = scratch + plan.pair_offset();
  for (index_t y = 0; y < count; y += 2) {
    const bool single = y + 1 == count;
    line.kernels().merge_pair(plane + y * row, plane + (single ? y : y + 1) * row, n, pair);
    const Points<const T> in{pair, point, lanes};
    const Points<T> out{single ? pair : buffer + y * out_row, single ? point : lanes, single ? lanes : out_row};
    line.complex(in.swapped(), out.swapped(), line_scratch);
    if (single) line.kernels().copy({pair, buffer + y * out_row, point, lanes, 0, 0, nullptr, nullptr, nullptr, n});
  }
}

/// Transforms plane z along X and Y and writes it into the memory of the spectrum. So the half-transformed tile needs
/// no memory of its own.
template <class T, class Load>
void ForwardPlane(const TilePlan<T>& plan, const Load& load, index_t z, index_t lane, T* spectrum,
                  const TileStrides& strides, T* scratch) {
  const std::ptrdiff_t lanes = plan.line(0).lanes(), point = 2 * lanes, row = plan.x_star() * point;
  const std::ptrdiff_t spectrum_row = plan.x_star() * strides.block;
  const Extent3& support = plan.support();
  const TileRows<const T> rows = load.Rows(z, lane, scratch + plan.rows_offset());
  const PlanePrefetch<T> next = load.Next(z, lane);
  TransformRows(plan, rows, next.along_x, scratch, scratch);
  // The points of the next plane lie beside these. Without this prefetch, their cache lines would be read when they are
  // written.
  const std::ptrdiff_t ahead = z + 1 < support.z ? strides.frequency : 0;
  plan.line(1).complex_lines(
      {scratch, row, lanes}, {spectrum + lane + z * strides.frequency, spectrum_row, strides.re_im, ahead},
      scratch + plan.line_offset(), support.y, plan.extent().y, plan.x_star(), point, strides.block, next.along_y);
}

/// Transforms plane z along Y and X, after inverse_lines() has transformed the lines along Z.
template <class T, class Store>
void InversePlane(const TilePlan<T>& plan, const T* spectrum, const TileStrides& strides, const Store& store, index_t z,
                  index_t lane, T* scratch) {
  const std::ptrdiff_t lanes = plan.line(0).lanes(), point = 2 * lanes, row = plan.x_star() * point;
  const std::ptrdiff_t spectrum_row = plan.x_star() * strides.block;
  const Extent3& support = plan.support();
  T* buffer = scratch + plan.rows_offset();
  const PlanePrefetch<T> next = store.Next(z, lane);
  // Real and imaginary parts are swapped, because these transforms are backward. The points of the next plane lie
  // beside these.
  const std::ptrdiff_t ahead = z + 1 < support.z ? strides.frequency : 0;
  const Points<const T> in{spectrum + lane + z * strides.frequency, spectrum_row, strides.re_im, ahead};
  plan.line(1).complex_lines(in.swapped(), Points<T>{scratch, row, lanes}.swapped(), scratch + plan.line_offset(),
                             plan.extent().y, support.y, plan.x_star(), strides.block, point, next.along_y);
  InvertRows(plan, static_cast<const T*>(scratch), next.along_x, buffer, scratch);
  store.Store(z, lane, buffer);
}

template <class T, class Load>
void ForwardPlanes(const TilePlan<T>& plan, const Load& load, T* spectrum, const TileStrides& strides, T* scratch) {
  for (index_t lane = 0; lane < tile_lanes<T>; lane += plan.line(0).lanes()) {
    for (index_t z = 0; z < plan.support().z; ++z) ForwardPlane(plan, load, z, lane, spectrum, strides, scratch);
  }
}

template <class T, class Store>
void InversePlanes(const TilePlan<T>& plan, const T* spectrum, const TileStrides& strides, const Store& store,
                   T* scratch) {
  for (index_t lane = 0; lane < tile_lanes<T>; lane += plan.line(0).lanes()) {
    for (index_t z = 0; z < plan.support().z; ++z) InversePlane(plan, spectrum, strides, store, z, lane, scratch);
  }
}

/// Transforms planes, and then lines along Z in place.
template <class T, class Load>
void ForwardTile(const TilePlan<T>& plan, const Load& load, T* spectrum, const TileStrides& strides, T* scratch) {
  ForwardPlanes(plan, load, spectrum, strides, scratch);
  const TileLines<T> lines{.from = spectrum, .to = spectrum, .from_strides = strides, .to_strides = strides};
  plan.forward_lines(lines, plan.blocks(), strides.block, strides.block, scratch);
}

template <class T, class Store>
void InverseTile(const TilePlan<T>& plan, T* spectrum, const TileStrides& strides, const Store& store, T* scratch) {
  const TileLines<T> lines{.from = spectrum, .to = spectrum, .from_strides = strides, .to_strides = strides};
  plan.inverse_lines(lines, plan.blocks(), strides.block, strides.block, scratch);
  InversePlanes(plan, static_cast<const T*>(spectrum), strides, store, scratch);
}

/// Returns the voxels of a tile that lie in the box and in the support.
inline TileBox Inside(const TileBox& box, const Extent3& support) {
  TileBox inside;
  for (int axis = 0; axis < 3; ++axis) {
    inside.begin[axis] = std::clamp<index_t>(box.begin[axis], 0, support[axis]);
    inside.end[axis] = std::clamp<index_t>(box.end[axis], inside.begin[axis], support[axis]);
  }
  return inside;
}
inline bool HoldsRow(const TileBox& box, index_t z, index_t y) {
  return z >= box.begin.z && z < box.end.z && y >= box.begin.y && y < box.end.y;
}

/// Returns the memory of a plane of a blocked tensor for prefetching.
template <class T>
PlanePrefetch<std::remove_const_t<T>> PrefetchPlane(const BlockedTile<T>& tile, const TileBox& box, index_t z,
                                                    index_t lane) {
  if (z < box.begin.z || z >= box.end.z) return {};
  const T* first =
      tile.data + z * tile.plane_stride + box.begin.y * tile.row_stride + box.begin.x * tile.voxel_stride + lane;
  const index_t half = (box.end.x - box.begin.x) / 2;
  return {{first, tile.row_stride, tile.voxel_stride, half},
          {first + half * tile.voxel_stride, tile.voxel_stride, tile.row_stride, box.end.y - box.begin.y}};
}

/// A prologue that loads from a blocked tensor and pads with zeros.
template <class T>
class BlockedLoad {
 public:
  BlockedLoad(const TilePlan<T>& plan, const BlockedTile<const T>& source)
      : source_(source),
        n_(plan.extent().x),
        rows_(plan.support().y),
        in_place_(plan.line(2).has_real()),
        box_(Inside(source.box, plan.support())) {}

  PlanePrefetch<T> Next(index_t z, index_t lane) const { return PrefetchPlane(source_, box_, z + 1, lane); }
  TileRows<const T> Rows(index_t z, index_t lane, T* buffer) const {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
    if (z < box_.begin.z || z >= box_.end.z) return {nullptr, 0, 0, 0, 0};
    const T* plane = source_.data + z * source_.plane_stride + lane;
    if (box_.begin.y == 0 && box_.begin.x == 0 && (box_.end.x == n_ || in_place_)) {
      return {plane, source_.voxel_stride, source_.row_stride, box_.end.y, box_.end.x};
    }
    for (index_t y = 0; y < rows_; ++y) {
      T* row = buffer + y * n_ * lanes;
      const bool empty = y < box_.begin.y || y >= box_.end.y;
      const index_t begin = empty ? n_ : box_.begin.x, end = empty ? n_ : box_.end.x;
      const T* from = plane + y * source_.row_stride;
      for (index_t x = 0; x < begin; ++x) hn::StoreU(hn::Zero(d), d, row + x * lanes);
      for (index_t x = begin; x < end; ++x) {
        hn::StoreU(hn::LoadU(d, from + x * source_.voxel_stride), d, row + x * lanes);
      }
      for (index_t x = end; x < n_; ++x) hn::StoreU(hn::Zero(d), d, row + x * lanes);
    }
    return {buffer, lanes, n_ * lanes, rows_, n_};
  }

 private:
  const BlockedTile<const T>& source_;
  index_t n_, rows_;
  bool in_place_;  ///< whether rows that end early are also read in place
  TileBox box_;
};

/// An epilogue that scales, and stores into or adds to a blocked tensor.
template <class T>
class BlockedStore {
 public:
  BlockedStore(const TilePlan<T>& plan, const BlockedTile<T>& target, const TileStore<T>& store)
      : target_(target), store_(store), n_(plan.extent().x), box_(Inside(target.box, plan.support())) {}

  PlanePrefetch<T> Next(index_t z, index_t lane) const { return PrefetchPlane(target_, box_, z, lane); }
  void Store(index_t z, index_t lane, const T* buffer) const {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
    if (z < box_.begin.z || z >= box_.end.z) return;
    // Local copies: the compiler then knows that no store changes them.
    const BlockedTile<T> target = target_;
    const bool add = store_.add;
    const auto scale = hn::Set(d, store_.scale);
    for (index_t y = box_.begin.y; y < box_.end.y; ++y) {
      const T* from = buffer + y * n_ * lanes;
      T* row = target.data + z * target.plane_stride + y * target.row_stride + lane;
      const index_t end = box_.end.x;
      for (index_t x = box_.begin.x; x < end; ++x) {
        T* voxel = row + x * target.voxel_stride;
        const auto value = hn::Mul(scale, hn::LoadU(d, from + x * lanes));
        hn::StoreU(add ? hn::Add(hn::LoadU(d, voxel), value) : value, d, voxel);
      }
    }
  }

 private:
  const BlockedTile<T>& target_;
  const TileStore<T>& store_;
  index_t n_;
  TileBox box_;
};

/// A prologue that loads lanes that are stored separately, and pads with zeros.
template <class T>
class PlainLoad {
 public:
  PlainLoad(const TilePlan<T>& plan, const PlainTile<const T>& source)
      : plan_(plan), source_(source), n_(plan.extent().x) {}

  PlanePrefetch<T> Next(index_t, index_t) const { return {}; }
  TileRows<const T> Rows(index_t z, index_t first, T* buffer) const {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
    T* staged = buffer + plan_.extent().y * n_ * lanes;
    std::array<T*, hn::MaxLanes(hn::ScalableTag<T>())> rows{};
    for (index_t y = 0; y < plan_.support().y; ++y) {
      for (std::ptrdiff_t lane = 0; lane < lanes; ++lane) {
        rows[static_cast<std::size_t>(lane)] = Row(z, y, static_cast<std::size_t>(first + lane), staged + lane * n_);
      }
      LoadRows(d, rows.data(), 1, buffer + y * n_ * lanes, lanes, n_);
    }
    return {buffer, lanes, n_ * lanes, plan_.support().y, n_};
  }

 private:
  /// Returns the row of a lane: a pointer to it, or a copy in `staged` if a part of it counts as zero.
  T* Row(index_t z, index_t y, std::size_t lane, T* staged) const {
    const TileBox box = Inside(source_.boxes[lane], plan_.support());
    const bool there = source_.lanes[lane] != nullptr && HoldsRow(box, z, y);
    const T* row =
        there ? source_.lanes[lane] + z * source_.plane_stride + y * source_.row_stride : static_cast<const T*>(staged);
    const index_t step = source_.voxel_stride;
    if (there && step == 1 && box.begin.x == 0 && box.end.x == n_) return const_cast<T*>(row);  // LoadRows only reads
    std::fill(staged, staged + n_, T{0});
    if (there && step == 1) std::copy(row + box.begin.x, row + box.end.x, staged + box.begin.x);
    if (there && step != 1) {
      CopyStepped(row + box.begin.x * step, step, box.end.x - box.begin.x, staged + box.begin.x);
    }
    return staged;
  }

  const TilePlan<T>& plan_;
  const PlainTile<const T>& source_;
  index_t n_;
};

/// An epilogue that scales, and stores into or adds to lanes that are stored separately.
template <class T>
class PlainStore {
 public:
  PlainStore(const TilePlan<T>& plan, const PlainTile<T>& target, const TileStore<T>& store)
      : plan_(plan), target_(target), store_(store), n_(plan.extent().x) {}

  PlanePrefetch<T> Next(index_t, index_t) const { return {}; }
  void Store(index_t z, index_t first, const T* buffer) const {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
    // The plan's scratch has room for these rows behind the plane.
    T* staged = const_cast<T*>(buffer) + plan_.extent().y * n_ * lanes;
    std::array<T*, hn::MaxLanes(hn::ScalableTag<T>())> rows{};
    for (std::ptrdiff_t lane = 0; lane < lanes; ++lane) rows[static_cast<std::size_t>(lane)] = staged + lane * n_;
    for (index_t y = 0; y < plan_.support().y; ++y) {
      StoreRows(d, buffer + y * n_ * lanes, lanes, rows.data(), 1, plan_.support().x);
      for (std::ptrdiff_t lane = 0; lane < lanes; ++lane) {
        const auto index = static_cast<std::size_t>(first + lane);
        const TileBox box = Inside(target_.boxes[index], plan_.support());
        if (target_.lanes[index] == nullptr || !HoldsRow(box, z, y)) continue;
        T* row = target_.lanes[index] + z * target_.plane_stride + y * target_.row_stride;
        const T* from = staged + lane * n_;
        for (index_t x = box.begin.x; x < box.end.x; ++x) {
          T& to = row[x * target_.voxel_stride];
          to = store_.add ? to + store_.scale * from[x] : store_.scale * from[x];
        }
      }
    }
  }

 private:
  const TilePlan<T>& plan_;
  const PlainTile<T>& target_;
  const TileStore<T>& store_;
  index_t n_;
};

}  // namespace HWY_NAMESPACE
}  // namespace convolume::fft
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
