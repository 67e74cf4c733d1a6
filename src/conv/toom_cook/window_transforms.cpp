#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/toom_cook/window_transforms.cpp"
#include "conv/toom_cook/window_transforms.hpp"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "conv/tensor_io/tile_io-inl.hpp"
#include "conv/toom_cook/window_points-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {
namespace {

/// Rows of voxels of a row of windows. Windows that lie inside of a blocked tensor are read in the tensor itself,
/// unless their voxels are multiplied by a gradient. All others are staged, with zeros outside of the tensor.
template <class T>
class WindowRows {
 public:
  /// Window i begins at its first voxel in voxels[], `step` elements per voxel, if it is one of [begin, end). Otherwise
  /// it begins there in staged[], in blocks of lanes.
  struct Row {
    const T* voxels = nullptr;  ///< null: all voxels are zero
    const T* staged = nullptr;
    std::ptrdiff_t step = 0;   ///< elements between voxels in the tensor
    std::ptrdiff_t ahead = 0;  ///< elements to the voxel of the next plane, which is prefetched
    index_t begin = 0, end = 0;
  };

  /// Windows of `points` voxels begin `results` voxels apart. `memory` holds two rows of voxels.
  WindowRows(const WindowSource<T>& source, index_t points, index_t results, T* memory)
      : source_(source),
        results_(results),
        overlap_(points - results),
        width_(source.windows * results + overlap_),
        memory_(memory) {
    const Extent3& extent = source.block.extent;
    begin_ = std::clamp<index_t>(-source.origin.x, 0, width_);
    end_ = std::clamp<index_t>(extent.x - source.origin.x, begin_, width_);
    if (!source.block.blocked || source.activation != nullptr) return;
    first_in_place_ = (begin_ + results - 1) / results;
    last_in_place_ = std::max(first_in_place_, (end_ - overlap_) / results);
  }

  bool holds_plane(index_t z) const {
    const index_t at = source_.origin.z + z;
    return at >= 0 && at < source_.block.extent.z && begin_ < end_;
  }

  Row operator()(index_t z, index_t y) const {
    const index_t at = source_.origin.y + y;
    if (at < 0 || at >= source_.block.extent.y) return {};
    const BlockView<const T>& block = source_.block;
    // Windows in front of the first one in place, and behind the last one.
    if (first_in_place_ < last_in_place_) {
      if (first_in_place_ > 0) Stage(z, y, 0, first_in_place_ * results_ + overlap_);
      if (last_in_place_ < source_.windows) Stage(z, y, last_in_place_ * results_, width_);
    } else {
      Stage(z, y, 0, width_);
    }
    return {voxel(block, z, y, 0), memory_, block.voxel_stride, block.plane_stride, first_in_place_, last_in_place_};
  }

 private:
  const T* voxel(const BlockView<const T>& block, index_t z, index_t y, index_t x) const {
    return block.data + (source_.origin.z + z) * block.plane_stride + (source_.origin.y + y) * block.row_stride +
           (source_.origin.x + x) * block.voxel_stride;
  }

  /// Stages the voxels [first, last) of row (z, y).
  void Stage(index_t z, index_t y, index_t first, index_t last) const {
    if (first >= last) return;
    const index_t begin = std::clamp(begin_, first, last), end = std::clamp(end_, begin, last);
    std::fill(memory_ + first * block_lanes<T>, memory_ + begin * block_lanes<T>, T{0});
    std::fill(memory_ + end * block_lanes<T>, memory_ + last * block_lanes<T>, T{0});
    if (begin == end) return;
    T* const inside = memory_ + begin * block_lanes<T>;
    Load(source_.block, voxel(source_.block, z, y, begin), end - begin, inside);
    if (source_.activation == nullptr) return;
    T* const outputs = memory_ + width_ * block_lanes<T>;
    Load(source_.y, voxel(source_.y, z, y, begin), end - begin, outputs);
    ops::HWY_NAMESPACE::ActivationGradient(*source_.activation, outputs, static_cast<const T*>(inside), inside,
                                           (end - begin) * block_lanes<T>);
  }

  /// Loads voxels that lie inside of the tensor.
  static void Load(const BlockView<const T>& block, const T* from, index_t count, T* to) {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
    for (std::ptrdiff_t lane = 0; lane < block_lanes<T>; lane += lanes) {
      if (!block.blocked) {
        LoadPlainVoxels<T>(block, from, count, lane, to + lane, block_lanes<T>, block.plane_stride);
        continue;
      }
      const T* voxel = from + lane;
      for (index_t x = 0; x < count; ++x, voxel += block.voxel_stride) {
        hn::StoreU(hn::LoadU(d, voxel), d, to + x * block_lanes<T> + lane);
      }
    }
  }

  const WindowSource<T>& source_;
  index_t results_, overlap_, width_, begin_, end_;  ///< voxels [begin_, end_) of a row lie inside of the tensor
  index_t first_in_place_ = 0, last_in_place_ = 0;
  T* memory_;
};

/// Transforms row y of all windows of a plane into `half`: [block of lanes][window][row][frequency along X].
template <int Points, class T>
HWY_INLINE void TransformRow(const typename WindowRows<T>::Row& row, index_t windows, index_t y, T* half) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  const std::ptrdiff_t window = Points * window_points * lanes;
  for (std::ptrdiff_t lane = 0; lane < block_lanes<T>; lane += lanes) {
    T* to = half + lane / lanes * windows * window + y * window_points * lanes;
    for (index_t t = 0; t < windows; ++t, to += window) {
      const bool in_place = t >= row.begin && t < row.end;
      const std::ptrdiff_t step = in_place ? row.step : block_lanes<T>;
      const T* from = (in_place ? row.voxels : row.staged) + t * window_results * step + lane;
      WindowLine<hn::Vec<decltype(d)>> line;
      CONVOLUME_UNROLL
      for (int k = 0; k < Points; ++k) line[k] = hn::LoadU(d, from + k * step);
      if (lane == 0 && in_place) {
        CONVOLUME_UNROLL
        for (int k = Points - window_results; k < Points; ++k) __builtin_prefetch(from + k * step + row.ahead);
      }
      TransformLine<Points>(d, line);
      CONVOLUME_UNROLL
      for (int k = 0; k < window_points; ++k) hn::StoreU(line[k], d, to + k * lanes);
    }
  }
}

/// Transforms the columns of a plane whose rows are transformed.
template <int Points, class T>
HWY_INLINE void TransformColumns(const T* half, index_t windows, T* plane, const PlaneStrides& strides) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  for (std::ptrdiff_t lane = 0; lane < block_lanes<T>; lane += lanes) {
    for (index_t t = 0; t < windows; ++t, half += Points * window_points * lanes) {
      for (int k = 0; k < window_points; ++k) {
        WindowLine<hn::Vec<decltype(d)>> line;
        CONVOLUME_UNROLL
        for (int r = 0; r < Points; ++r) line[r] = hn::LoadU(d, half + (r * window_points + k) * lanes);
        TransformLine<Points>(d, line);
        T* to = plane + k * strides.frequency + t * strides.window + lane;
        CONVOLUME_UNROLL
        for (int r = 0; r < window_points; ++r, to += window_points * strides.frequency) hn::StoreU(line[r], d, to);
      }
    }
  }
}

template <class T>
void ClearPlane(index_t frequencies, index_t windows, T* plane, const PlaneStrides& strides) {
  for (index_t f = 0; f < frequencies; ++f) {
    for (index_t t = 0; t < windows; ++t) {
      std::fill_n(plane + f * strides.frequency + t * strides.window, block_lanes<T>, T{0});
    }
  }
}

template <int Points, class T>
void TransformPlanes(const WindowSource<T>& source, T* planes, const PlaneStrides& strides, T* scratch) {
  T* half = scratch;
  const WindowRows<T> rows(source, Points, window_results,
                           scratch + source.windows * plane_frequencies * block_lanes<T>);
  for (index_t z = 0; z < source.planes; ++z, planes += strides.plane) {
    if (!rows.holds_plane(z)) {
      ClearPlane(plane_frequencies, source.windows, planes, strides);
      continue;
    }
    for (index_t y = 0; y < Points; ++y) {
      const auto row = rows(z, y);
      if (row.voxels != nullptr) {
        TransformRow<Points>(row, source.windows, y, half);
        continue;
      }
      const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(hn::ScalableTag<T>()));
      for (index_t i = 0; i < source.windows * (block_lanes<T> / lanes); ++i) {
        std::fill_n(half + (i * Points + y) * window_points * lanes, window_points * lanes, T{0});
      }
    }
    TransformColumns<Points>(half, source.windows, planes, strides);
  }
}

/// Copies a row of voxels to a plane of windows that are single voxels.
template <class T>
HWY_INLINE void CopyRow(const typename WindowRows<T>::Row& row, index_t windows, T* plane, std::ptrdiff_t window) {
  const hn::CappedTag<T, static_cast<std::size_t>(block_lanes<T>)> d;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  for (index_t t = 0; t < windows; ++t, plane += window) {
    const bool in_place = t >= row.begin && t < row.end;
    const T* from = in_place ? row.voxels + t * row.step : row.staged + t * block_lanes<T>;
    if (in_place) __builtin_prefetch(from + row.ahead);
    for (std::ptrdiff_t lane = 0; lane < block_lanes<T>; lane += lanes) {
      hn::StoreU(hn::LoadU(d, from + lane), d, plane + lane);
    }
  }
}

template <class T>
void CopyPlanes(const WindowSource<T>& source, T* planes, const PlaneStrides& strides, T* scratch) {
  const WindowRows<T> rows(source, 1, 1, scratch);
  for (index_t z = 0; z < source.planes; ++z, planes += strides.plane) {
    const auto row = rows.holds_plane(z) ? rows(z, 0) : typename WindowRows<T>::Row{};
    if (row.voxels == nullptr) {
      ClearPlane(1, source.windows, planes, strides);
    } else {
      CopyRow<T>(row, source.windows, planes, strides.window);
    }
  }
}

/// Transforms the line at `planes` to six values.
template <int Points>
struct ForwardLine {
  template <class T>
  static HWY_INLINE void Apply(const WindowLines<T>& lines, const T* planes, T* values) {
    const hn::ScalableTag<T> d;
    WindowLine<hn::Vec<decltype(d)>> line;
    CONVOLUME_UNROLL
    for (int z = 0; z < Points; ++z) line[z] = hn::LoadU(d, planes + z * lines.plane);
    TransformLine<Points>(d, line);
    CONVOLUME_UNROLL
    for (int h = 0; h < window_points; ++h) hn::StoreU(line[h], d, values + h * lines.frequency);
  }
};

/// Inverts six values to the line at `planes`.
struct InverseLine {
  template <class T>
  static HWY_INLINE void Apply(const WindowLines<T>& lines, T* planes, const T* values) {
    const hn::ScalableTag<T> d;
    WindowLine<hn::Vec<decltype(d)>> line;
    CONVOLUME_UNROLL
    for (int h = 0; h < window_points; ++h) line[h] = hn::LoadU(d, values + h * lines.frequency);
    InvertLine<window_results>(d, line);
    CONVOLUME_UNROLL
    for (int z = 0; z < window_results; ++z) hn::StoreU(line[z], d, planes + z * lines.plane);
  }
};

/// Transforms each line of each vector of channels by Line. It is no lambda, because GCC would call a lambda for each
/// vector, and load all constants again.
template <class Line, class T>
void TransformLines(const WindowLines<T>& all) {
  const WindowLines<T> lines = all;  // a copy, so that the compiler knows that no store changes it
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(hn::ScalableTag<T>()));
  for (index_t w = 0; w < lines.windows_z; ++w) {
    for (index_t t = 0; t < lines.windows_x; ++t) {
      T* planes = lines.planes + w * window_results * lines.plane + t * lines.window;
      T* values = lines.values + (w * lines.windows_x + t) * lines.row;
      for (index_t c = 0; c < lines.channels; c += lanes) Line::Apply(lines, planes + c, values + c);
    }
  }
}

/// Finishes rows of results and stores them.
template <class T>
class WindowStore {
 public:
  /// Each window has `results` voxels in a row.
  WindowStore(const WindowTarget<T>& target, index_t results, T* unused)
      : target_(target),
        count_(std::min(target.windows * results, target.block.extent.x - target.origin.x)),
        unused_(unused) {}

  /// Stores row (z, y) of the windows. `row` has a block of lanes for each voxel.
  void operator()(index_t z, index_t y, T* row) const {
    const bool relu = target_.activation.kind == Activation::Kind::relu;
    if (target_.block.blocked && relu) return StoreBlocked<true>(z, y, row);
    if (target_.activation.kind != Activation::Kind::none || !target_.block.blocked) {
      for (std::ptrdiff_t lane = 0; lane < block_lanes<T>; lane += lanes()) AddBias(lane, row + lane);
      ops::HWY_NAMESPACE::Activate(target_.activation, static_cast<const T*>(row), row, count_ * block_lanes<T>);
      if (!target_.block.blocked) return StorePlain(z, y, row);
      return StoreBlocked<false, false>(z, y, row);
    }
    StoreBlocked<false>(z, y, row);
  }

 private:
  static std::ptrdiff_t lanes() { return static_cast<std::ptrdiff_t>(hn::Lanes(hn::ScalableTag<T>())); }
  T* Voxel(index_t z, index_t y) const {
    const BlockView<T>& block = target_.block;
    return block.data + (target_.origin.z + z) * block.plane_stride + (target_.origin.y + y) * block.row_stride +
           target_.origin.x * block.voxel_stride;
  }
  hn::Vec<hn::ScalableTag<T>> Bias(std::ptrdiff_t lane) const {
    HWY_ALIGN T bias[hn::MaxLanes(hn::ScalableTag<T>())] = {};
    const index_t there = std::clamp<index_t>(target_.block.channels - lane, 0, lanes());
    for (index_t i = 0; i < there && target_.bias != nullptr; ++i) bias[i] = target_.bias[lane + i];
    return hn::Load(hn::ScalableTag<T>(), bias);
  }
  void AddBias(std::ptrdiff_t lane, T* values) const {
    const hn::ScalableTag<T> d;
    const auto bias = Bias(lane);
    for (index_t x = 0; x < count_; ++x, values += block_lanes<T>) {
      hn::StoreU(hn::Add(hn::LoadU(d, values), bias), d, values);
    }
  }

  /// Lanes without a channel become zero. ReLU keeps NaN. The lanes of a voxel are stored one after the other, because
  /// a non-temporal store has to complete its cache line.
  template <bool Relu, bool WithBias = true>
  void StoreBlocked(index_t z, index_t y, const T* row) const {
    const hn::ScalableTag<T> d;
    constexpr auto most = static_cast<int>(block_lanes<T>);  // of vectors, if they have one lane
    hn::Vec<decltype(d)> bias[most];
    hn::Mask<decltype(d)> channels[most];
    const auto vectors = static_cast<int>(block_lanes<T> / lanes());
    for (int i = 0; i < vectors; ++i) {
      bias[i] = Bias(i * lanes());
      const index_t there = std::clamp<index_t>(target_.block.channels - i * lanes(), 0, lanes());
      channels[i] = hn::FirstN(d, static_cast<std::size_t>(there));
    }
    T* to = Voxel(z, y);
    for (index_t x = 0; x < count_; ++x, to += target_.block.voxel_stride, row += block_lanes<T>) {
      for (int i = 0; i < vectors; ++i) {
        const std::ptrdiff_t lane = i * lanes();
        auto value = hn::LoadU(d, row + lane);
        if constexpr (WithBias) value = hn::Add(value, bias[i]);
        value = hn::IfThenElseZero(channels[i], value);
        if constexpr (Relu) value = hn::IfThenZeroElse(hn::Le(value, hn::Zero(d)), value);
        if (target_.add) {
          hn::StoreU(hn::Add(hn::LoadU(d, to + lane), value), d, to + lane);
        } else if (target_.non_temporal) {
          hn::Stream(value, d, to + lane);
        } else {
          hn::StoreU(value, d, to + lane);
        }
      }
    }
  }

  void StorePlain(index_t z, index_t y, const T* row) const {
    const hn::ScalableTag<T> d;
    const BlockView<T>& block = target_.block;
    const bool in_place = !target_.add && block.voxel_stride == 1;
    for (std::ptrdiff_t lane = 0; lane < block.channels; lane += lanes()) {
      T* const first = Voxel(z, y) + lane * block.channel_stride;
      const index_t there = std::min<index_t>(block.channels - lane, lanes());
      if (in_place) {
        BlockRows<T> rows{};
        for (index_t i = 0; i < lanes(); ++i) {
          rows[static_cast<std::size_t>(i)] = i < there ? first + i * block.channel_stride : unused_;
        }
        simd::HWY_NAMESPACE::StoreRows(d, row + lane, block_lanes<T>, rows.data(), 1, count_);
        continue;
      }
      for (index_t i = 0; i < there; ++i) {
        T* to = first + i * block.channel_stride;
        for (index_t x = 0; x < count_; ++x, to += block.voxel_stride) {
          const T value = row[x * block_lanes<T> + lane + i];
          *to = target_.add ? *to + value : value;
        }
      }
    }
  }

  const WindowTarget<T>& target_;
  index_t count_;
  T* unused_;
};

/// Inverts the columns of a plane into `half`: [block of lanes][window][row][frequency along X].
template <class T>
HWY_INLINE void InvertColumns(const T* plane, const PlaneStrides& strides, index_t windows, T* half) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  for (std::ptrdiff_t lane = 0; lane < block_lanes<T>; lane += lanes) {
    for (index_t t = 0; t < windows; ++t, half += window_results * window_points * lanes) {
      for (int k = 0; k < window_points; ++k) {
        WindowLine<hn::Vec<decltype(d)>> line;
        const T* from = plane + k * strides.frequency + t * strides.window + lane;
        CONVOLUME_UNROLL
        for (int r = 0; r < window_points; ++r, from += window_points * strides.frequency) line[r] = hn::LoadU(d, from);
        InvertLine<window_results>(d, line);
        CONVOLUME_UNROLL
        for (int r = 0; r < window_results; ++r) hn::StoreU(line[r], d, half + (r * window_points + k) * lanes);
      }
    }
  }
}

/// Inverts row y of all windows into a row of voxels.
template <class T>
HWY_INLINE void InvertRow(const T* half, index_t windows, index_t y, T* row) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  const std::ptrdiff_t window = window_results * window_points * lanes;
  half += y * window_points * lanes;
  for (std::ptrdiff_t lane = 0; lane < block_lanes<T>; lane += lanes) {
    for (index_t t = 0; t < windows; ++t, half += window) {
      WindowLine<hn::Vec<decltype(d)>> line;
      CONVOLUME_UNROLL
      for (int k = 0; k < window_points; ++k) line[k] = hn::LoadU(d, half + k * lanes);
      InvertLine<window_results>(d, line);
      CONVOLUME_UNROLL
      for (int k = 0; k < window_results; ++k) {
        hn::StoreU(line[k], d, row + (t * window_results + k) * block_lanes<T> + lane);
      }
    }
  }
}

template <class T>
void InversePlanes(const T* planes, const PlaneStrides& strides, const WindowTarget<T>& target, T* scratch) {
  T* row = scratch + target.windows * plane_frequencies * block_lanes<T>;
  const WindowStore<T> store(target, window_results, row + target.windows * window_results * block_lanes<T>);
  const index_t rows = std::min(window_results, target.block.extent.y - target.origin.y);
  for (index_t z = 0; z < target.planes; ++z, planes += strides.plane) {
    InvertColumns(planes, strides, target.windows, scratch);
    for (index_t y = 0; y < rows; ++y) {
      InvertRow(static_cast<const T*>(scratch), target.windows, y, row);
      store(z, y, row);
    }
  }
}

template <class T>
void StorePlanes(const T* planes, const PlaneStrides& strides, const WindowTarget<T>& target, T* scratch) {
  const WindowStore<T> store(target, 1, scratch + target.windows * block_lanes<T>);
  typename WindowRows<T>::Row row{.voxels = planes, .step = strides.window, .end = target.windows};
  for (index_t z = 0; z < target.planes; ++z, row.voxels += strides.plane) {
    CopyRow<T>(row, target.windows, scratch, block_lanes<T>);
    store(z, 0, scratch);
  }
}

template <class T>
void AddTo(const T* b, index_t count, T* a) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<index_t>(hn::Lanes(d));
  for (index_t i = 0; i < count; i += lanes) hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, a + i);
}

template <class T>
WindowTransforms<T> Kernels(const WindowShape& shape) {
  WindowTransforms<T> kernels{.planes = TransformPlanes<window_points, T>,
                              .kernel_planes = TransformPlanes<window_results, T>,
                              .inverse_planes = InversePlanes<T>,
                              .lines = TransformLines<ForwardLine<window_points>, T>,
                              .kernel_lines = TransformLines<ForwardLine<window_results>, T>,
                              .inverse_lines = TransformLines<InverseLine, T>,
                              .add = AddTo<T>};
  if (!shape.transforms_planes()) {
    kernels.planes = kernels.kernel_planes = CopyPlanes<T>;
    kernels.inverse_planes = StorePlanes<T>;
  }
  return kernels;
}

}  // namespace

WindowTransforms<float> WindowTransformsF32(const WindowShape& shape) { return Kernels<float>(shape); }
WindowTransforms<double> WindowTransformsF64(const WindowShape& shape) { return Kernels<double>(shape); }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

HWY_EXPORT(WindowTransformsF32);
HWY_EXPORT(WindowTransformsF64);

template <>
WindowTransforms<float> window_transforms(const WindowShape& shape) noexcept {
  return HWY_DYNAMIC_DISPATCH(WindowTransformsF32)(shape);
}
template <>
WindowTransforms<double> window_transforms(const WindowShape& shape) noexcept {
  return HWY_DYNAMIC_DISPATCH(WindowTransformsF64)(shape);
}

}  // namespace convolume::conv
#endif  // HWY_ONCE
