#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "conv/direct/channel_product.cpp"
#include "conv/direct/channel_product.hpp"

#include <algorithm>
#include <array>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "conv/direct/direct_rows-inl.hpp"
#include "core/simd/unroll-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace convolume::conv {
namespace HWY_NAMESPACE {
namespace {

/// The largest number of channels of one tap that are summed together, for C vectors of lanes. With one vector, all
/// channels of a block share its load.
template <int C>
constexpr int most_channels = HWY_TARGET > HWY_AVX3 ? 6
                              : C == 1              ? 16
                                                    : 8;
/// Whether there are registers for the sums of several taps. Taps share the load of dy, and there are fewer passes over
/// the voxels.
constexpr bool has_tap_groups = HWY_TARGET <= HWY_AVX3;
/// The number of taps that are summed together, and the largest number of channels beside it, for C vectors of lanes.
constexpr int taps_together = 3;
template <int C>
constexpr int most_channels_of_taps = 8 / C;
/// The largest numbers of rows, and of all their taps, that are summed together if there is a single channel and the
/// taps of a row read voxels that lie side by side.
constexpr int most_tap_rows = 5, most_row_taps_together = 25;

/// The values that follow the first one of a tap in x.
enum class Values {
  channels,         ///< channels of a voxel
  shared_channels,  ///< the same, where each tap reads for a voxel of dy what the tap before reads for the next one
  taps,             ///< the voxels of the next taps of a row, of a single channel
};

[[maybe_unused]] bool contains(const Box& box, const Extent3& i) {
  for (int axis = 0; axis < 3; ++axis) {
    if (i[axis] < box.begin[axis] || i[axis] >= box.end[axis]) return false;
  }
  return true;
}

/// The voxels that all of some taps read, and the voxels that one of them reads.
struct TapRanges {
  TapRanges(const ChannelTap* taps, std::size_t count) : all(taps->inside), any(taps->inside) {
    for (std::size_t t = 1; t < count; ++t) {
      for (int axis = 0; axis < 3; ++axis) {
        all.begin[axis] = std::max(all.begin[axis], taps[t].inside.begin[axis]);
        all.end[axis] = std::min(all.end[axis], taps[t].inside.end[axis]);
        any.begin[axis] = std::min(any.begin[axis], taps[t].inside.begin[axis]);
        any.end[axis] = std::max(any.end[axis], taps[t].inside.end[axis]);
      }
    }
  }
  Box all, any;
};

/// One pass over the voxels: its taps, the first channel, and the box that it prefetches.
template <class T>
struct Pass {
  const ChannelTap* taps;
  const TapRanges* ranges;
  index_t channel;
  const T* dy;
  T* sums;
  FetchedBox<T> next;
};

/// Sums over all voxels for `Places` taps, each with R values behind it, and for C vectors of lanes.
template <int R, int Places, int C, Values V, class T>
class VoxelSums {
 public:
  HWY_INLINE VoxelSums(const ChannelProduct<T>& p, const Pass<T>& pass) : p_(p), pass_(pass) {}

  HWY_INLINE void run() const {
    Vectors total;
    CONVOLUME_UNROLL
    for (Vector& sum : total) sum = hn::Zero(d);
    const TapRanges& ranges = *pass_.ranges;
    [[maybe_unused]] const SharedRange shared(pass_.taps);
    for (index_t z = ranges.any.begin.z; z < ranges.any.end.z; ++z) {
      for (index_t y = ranges.any.begin.y; y < ranges.any.end.y; ++y) {
        if constexpr (V == Values::shared_channels) {
          sum_shared_row(shared, z, y, total);
        } else {
          sum_row(ranges, z, y, total);
        }
      }
    }
    store(total);
  }

 private:
  using D = hn::ScalableTag<T>;
  using Vector = hn::Vec<D>;
  using Vectors = std::array<Vector, static_cast<std::size_t>(R* Places* C)>;
  static constexpr D d{};
  static constexpr std::size_t tap_count = V == Values::taps ? R * Places : Places;

  /// Returns the tap of value `r` behind place `t`.
  static constexpr int tap_of(int t, int r) { return V == Values::taps ? t * R + r : t; }

  HWY_INLINE void sum_row(const TapRanges& ranges, index_t z, index_t y, Vectors& total) const {
    const T* x = p_.x + pass_.channel + z * p_.x_strides.plane + y * p_.x_strides.row;
    const T* dy = pass_.dy + z * p_.dy_strides.plane + y * p_.dy_strides.row;
    const Box &all = ranges.all, &any = ranges.any;
    const bool whole = z >= all.begin.z && z < all.end.z && y >= all.begin.y && y < all.end.y;
    const index_t begin = whole ? std::min(all.begin.x, any.end.x) : any.end.x, end = whole ? all.end.x : any.end.x;
    index_t i = any.begin.x;
    if constexpr (tap_count > 1) {
      for (; i < begin; ++i) add_voxel({z, y, i}, x, dy, total);
    }
    if (begin < end) {
      const T* next = pass_.next.data + z * pass_.next.strides.plane + y * pass_.next.strides.row;
      add_voxels(begin, end, x, dy, next, total);
      i = end;
    }
    if constexpr (tap_count > 1) {
      for (; i < any.end.x; ++i) add_voxel({z, y, i}, x, dy, total);
    }
  }

  /// Adds the voxels [begin, end) of a row, which all taps read.
  HWY_INLINE void add_voxels(index_t begin, index_t end, const T* x, const T* dy, const T* next, Vectors& total) const {
    const std::ptrdiff_t x_voxel = p_.x_strides.voxel, next_voxel = pass_.next.strides.voxel;
    std::array<const T*, Places> a;
    CONVOLUME_UNROLL
    for (int t = 0; t < Places; ++t) {
      a[static_cast<std::size_t>(t)] = x + pass_.taps[tap_of(t, 0)].x + begin * x_voxel;
      // Hides how the pointers are related. Otherwise the compiler would keep one pointer and a distance per tap.
      __asm__("" : "+r"(a[static_cast<std::size_t>(t)]));
    }
    next += begin * next_voxel;
    const T* b = dy + begin * block<T>;
    for (const T* const last = dy + end * block<T>; b != last; b += block<T>, next += next_voxel) {
      __builtin_prefetch(next, 0, simd::HWY_NAMESPACE::into_l2);
      const std::array<Vector, C> g = load(b);
      CONVOLUME_UNROLL
      for (int t = 0; t < Places; ++t) {
        add_values(a[static_cast<std::size_t>(t)], g, t, total);
        a[static_cast<std::size_t>(t)] += x_voxel;
      }
    }
  }

  /// The voxels of a row of x that all taps read, and those that at least one tap reads. Tap t reads voxel j for voxel
  /// j - t of dy.
  struct SharedRange {
    HWY_INLINE explicit SharedRange(const ChannelTap* taps)
        : begin(taps->inside.begin.x), end(taps->inside.end.x), any_begin(begin), any_end(end) {
      for (int t = 1; t < Places; ++t) {
        const index_t first = taps[t].inside.begin.x + t, behind = taps[t].inside.end.x + t;
        begin = std::max(begin, first);
        end = std::min(end, behind);
        any_begin = std::min(any_begin, first);
        any_end = std::max(any_end, behind);
      }
    }
    index_t begin, end, any_begin, any_end;
  };

  /// Adds a row. Each voxel of x is loaded once for all taps, which read the same rows. The order of a tap's sum is
  /// that of sum_row().
  HWY_INLINE void sum_shared_row(const SharedRange& range, index_t z, index_t y, Vectors& total) const {
    const T* x = p_.x + pass_.taps->x + pass_.channel + z * p_.x_strides.plane + y * p_.x_strides.row;
    const T* dy = pass_.dy + z * p_.dy_strides.plane + y * p_.dy_strides.row;
    index_t j = range.any_begin;
    for (const index_t head = std::min(range.begin, range.any_end); j < head; ++j) add_shared_voxel(j, x, dy, total);
    if (j < range.end) {
      const T* next = pass_.next.data + z * pass_.next.strides.plane + y * pass_.next.strides.row;
      add_shared_voxels(range.begin, range.end, x, dy, next, total);
      j = range.end;
    }
    for (; j < range.any_end; ++j) add_shared_voxel(j, x, dy, total);
  }

  /// Adds voxel j of x for the taps that read it.
  HWY_INLINE void add_shared_voxel(index_t j, const T* x, const T* dy, Vectors& total) const {
    CONVOLUME_UNROLL
    for (int t = 0; t < Places; ++t) {
      const index_t i = j - t;
      if (i < pass_.taps[t].inside.begin.x || i >= pass_.taps[t].inside.end.x) continue;
      add_values(x + j * p_.x_strides.voxel, load(dy + i * block<T>), t, total);
    }
  }

  /// Adds the voxels [begin, end) of a row of x, which all taps read. Registers hold the last `Places` voxels of dy.
  HWY_INLINE void add_shared_voxels(index_t begin, index_t end, const T* x, const T* dy, const T* next,
                                    Vectors& total) const {
    const std::ptrdiff_t x_voxel = p_.x_strides.voxel, next_voxel = pass_.next.strides.voxel;
    const T* a = x + begin * x_voxel;
    const T* b = dy + begin * block<T>;
    next += begin * next_voxel;
    std::array<std::array<Vector, C>, Places> g;
    CONVOLUME_UNROLL
    for (int t = 1; t < Places; ++t) g[static_cast<std::size_t>(Places - t)] = load(b - t * block<T>);
    const auto add = [&](auto newest) CONVOLUME_ALWAYS_INLINE {
      __builtin_prefetch(next, 0, simd::HWY_NAMESPACE::into_l2);
      g[newest] = load(b);
      CONVOLUME_UNROLL
      for (int r = 0; r < R; ++r) {
        __asm__("" : "+r"(a));  // otherwise the compiler would load channels first, for which registers are missing
        const Vector value = hn::Set(d, a[r]);
        CONVOLUME_UNROLL
        for (std::size_t t = 0; t < Places; ++t) add_value(value, g[(newest + Places - t) % Places], t * R + r, total);
      }
      a += x_voxel;
      b += block<T>;
      next += next_voxel;
    };
    using std::integral_constant;
    static_assert(Places == 3);
    index_t left = end - begin;
    for (; left >= 3; left -= 3) {
      add(integral_constant<std::size_t, 0>());
      add(integral_constant<std::size_t, 1>());
      add(integral_constant<std::size_t, 2>());
    }
    if (left > 0) add(integral_constant<std::size_t, 0>());
    if (left > 1) add(integral_constant<std::size_t, 1>());
  }

  /// Returns a voxel of dy.
  HWY_INLINE std::array<Vector, C> load(const T* from) const {
    const std::ptrdiff_t second = SecondVector<T>(p_.dy_column);
    std::array<Vector, C> g;
    CONVOLUME_UNROLL
    for (std::size_t c = 0; c < C; ++c) g[c] = hn::LoadU(d, from + static_cast<std::ptrdiff_t>(c) * second);
    return g;
  }

  HWY_INLINE void add_values(const T* x, const std::array<Vector, C>& g, int t, Vectors& total) const {
    CONVOLUME_UNROLL
    for (int r = 0; r < R; ++r) add_value(hn::Set(d, x[r]), g, static_cast<std::size_t>(t * R + r), total);
  }
  HWY_INLINE void add_value(Vector value, const std::array<Vector, C>& g, std::size_t place, Vectors& total) const {
    CONVOLUME_UNROLL
    for (std::size_t c = 0; c < C; ++c) {
      Vector& sum = total[place * C + c];
      sum = hn::MulAdd(value, g[c], sum);
    }
  }

  /// Adds a voxel for the taps that do not read padding there.
  HWY_INLINE void add_voxel(const Extent3& i, const T* x, const T* dy, Vectors& total) const {
    const std::array<Vector, C> g = load(dy + i.x * block<T>);
    CONVOLUME_UNROLL
    for (int t = 0; t < Places; ++t) {
      if constexpr (V != Values::taps) {
        const ChannelTap& tap = pass_.taps[t];
        if (contains(tap.inside, i)) add_values(x + tap.x + i.x * p_.x_strides.voxel, g, t, total);
      } else {
        CONVOLUME_UNROLL
        for (int r = 0; r < R; ++r) {
          const ChannelTap& tap = pass_.taps[tap_of(t, r)];
          if (!contains(tap.inside, i)) continue;
          const Vector value = hn::Set(d, x[tap.x + i.x * p_.x_strides.voxel]);
          add_value(value, g, static_cast<std::size_t>(t * R + r), total);
        }
      }
    }
  }

  HWY_INLINE void store(const Vectors& total) const {
    const std::ptrdiff_t second = SecondVector<T>(p_.sums_column);
    const bool add = p_.add;
    CONVOLUME_UNROLL
    for (int t = 0; t < Places; ++t) {
      CONVOLUME_UNROLL
      for (int r = 0; r < R; ++r) {
        T* to = pass_.sums + pass_.taps[tap_of(t, r)].sums + (V == Values::taps ? 0 : r * block<T>);
        CONVOLUME_UNROLL
        for (std::size_t c = 0; c < C; ++c, to += second) {
          const Vector sum = total[static_cast<std::size_t>((t * R + r) * C) + c];
          hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sum) : sum, d, to);
        }
      }
    }
  }

  const ChannelProduct<T>& p_;
  const Pass<T>& pass_;
};

template <int R, int Places, int C, Values V, class T>
void SumPass(const ChannelProduct<T>& p, const Pass<T>& pass) {
  VoxelSums<R, Places, C, V, T>(p, pass).run();
}

template <class T>
using PassKernel = void (*)(const ChannelProduct<T>&, const Pass<T>&);

/// Kernels for 1 to sizeof...(R) channels of `Taps` taps.
template <int Taps, int C, Values V, class T, std::size_t... R>
constexpr std::array<PassKernel<T>, sizeof...(R)> ChannelKernels(std::index_sequence<R...>) {
  return {&SumPass<static_cast<int>(R) + 1, Taps, C, V, T>...};
}
/// Kernels for 1 to sizeof...(Rows) rows of `Taps` taps.
template <int Taps, class T, std::size_t... Rows>
constexpr std::array<PassKernel<T>, sizeof...(Rows)> RowKernels(std::index_sequence<Rows...>) {
  return {&SumPass<Taps, static_cast<int>(Rows) + 1, 1, Values::taps, T>...};
}

/// Runs the passes of a product.
template <class T>
class ProductPasses {
 public:
  explicit ProductPasses(const ChannelProduct<T>& p) : p_(p), vectors_(p.columns * (block<T> / vector_lanes<T>)) {}

  index_t run() {
    for (index_t tap = 0; tap < p_.tap_count;) tap += sum_taps(tap);
    return fetched_;
  }

 private:
  /// Sums some taps, from number `tap` on. Returns how many.
  index_t sum_taps(index_t tap) {
    if constexpr (has_tap_groups) {
      if (const index_t row = row_length(tap); row > 1) return sum_rows(tap, row);
      if (are_together(tap)) {
        share_voxels(tap) ? sum_channels<taps_together, Values::shared_channels>(tap)
                          : sum_channels<taps_together, Values::channels>(tap);
        return taps_together;
      }
    }
    sum_channels<1, Values::channels>(tap);
    return 1;
  }

  /// Returns whether taps_together taps meet padding in the same rows. Otherwise they would have few voxels in common.
  bool are_together(index_t tap) const {
    if (tap + taps_together > p_.tap_count) return false;
    const Box& first = p_.taps[tap].inside;
    return std::all_of(p_.taps + tap + 1, p_.taps + tap + taps_together, [&](const ChannelTap& other) {
      return other.inside.begin.z == first.begin.z && other.inside.end.z == first.end.z &&
             other.inside.begin.y == first.begin.y && other.inside.end.y == first.end.y;
    });
  }

  /// Returns whether each of the taps that are summed together reads for a voxel of dy what the tap before reads for
  /// the next voxel of the row.
  bool share_voxels(index_t tap) const {
    for (index_t t = 1; t < taps_together; ++t) {
      if (p_.taps[tap + t].x != p_.taps[tap].x + t * p_.x_strides.voxel) return false;
    }
    return true;
  }

  template <int Taps, Values V>
  void sum_channels(index_t tap) {
    const TapRanges ranges(p_.taps + tap, Taps);
    index_t v = 0;
    for (; v + 2 <= vectors_; v += 2) sum_pieces<Taps, 2, V>(tap, ranges, v);
    if constexpr (block<T> == vector_lanes<T>) {
      if (v < vectors_) sum_pieces<Taps, 1, V>(tap, ranges, v);
    }
  }
  /// Divides the channels into nearly equal pieces.
  template <int Taps, int C, Values V>
  void sum_pieces(index_t tap, const TapRanges& ranges, index_t vector) {
    constexpr int most = Taps == 1 ? most_channels<C> : most_channels_of_taps<C>;
    static constexpr auto kernels = ChannelKernels<Taps, C, V, T>(std::make_index_sequence<most>());
    const index_t pieces = (p_.channels + most - 1) / most;
    const index_t least = p_.channels / pieces, longer = p_.channels % pieces;
    for (index_t piece = 0, channel = 0; piece < pieces; ++piece) {
      const index_t channels = least + (piece < longer ? 1 : 0);
      kernels[static_cast<std::size_t>(channels - 1)](p_, pass(tap, ranges, vector, channel));
      channel += channels;
    }
  }

  /// Returns how many taps from number `tap` on are summed as a row: they read neighbouring voxels of a single channel.
  /// There are kernels for 3, 4, 5 and 7 taps. Longer rows are divided into equal parts if possible. Of very long rows
  /// only the next taps are looked at.
  index_t row_length(index_t tap) const {
    constexpr index_t most_looked_at = 15;
    if (p_.channels != 1) return 1;
    index_t run = 1;
    while (run < most_looked_at && tap + run < p_.tap_count && p_.taps[tap + run].x == p_.taps[tap].x + run) ++run;
    if (run < 3) return 1;
    for (const index_t length : {run, index_t{7}, index_t{5}, index_t{4}, index_t{3}}) {
      if (length >= 3 && length <= 7 && length != 6 && run % length == 0) return length;
    }
    return run - 5 < 3 ? 4 : 5;
  }
  /// Sums as many rows of `length` taps as the registers hold. Returns the number of taps.
  index_t sum_rows(index_t tap, index_t length) {
    const index_t most = std::min<index_t>(most_tap_rows, most_row_taps_together / length);
    index_t rows = 1;
    while (rows < most && tap + rows * length < p_.tap_count && row_length(tap + rows * length) == length) ++rows;
    const TapRanges ranges(p_.taps + tap, static_cast<std::size_t>(rows * length));
    for (index_t v = 0; v < vectors_; ++v) row_kernel(length, rows)(p_, pass(tap, ranges, v, 0));
    return rows * length;
  }
  static PassKernel<T> row_kernel(index_t length, index_t rows) {
    switch (length) {
      case 3:
        return row_kernel<3>(rows);
      case 4:
        return row_kernel<4>(rows);
      case 5:
        return row_kernel<5>(rows);
      default:
        return row_kernel<7>(rows);
    }
  }
  template <int Taps>
  static PassKernel<T> row_kernel(index_t rows) {
    constexpr int most = std::min(most_tap_rows, most_row_taps_together / Taps);
    static constexpr auto kernels = RowKernels<Taps, T>(std::make_index_sequence<most>());
    return kernels[static_cast<std::size_t>(rows - 1)];
  }

  /// Returns a pass, which prefetches the next box. After the last box, and if no voxel has all taps, it prefetches dy,
  /// which is in the caches.
  Pass<T> pass(index_t tap, const TapRanges& ranges, index_t vector, index_t channel) {
    const T* dy = p_.dy + VectorOffset<T>(vector, p_.dy_column);
    const Extent3 common = ranges.all.extent();
    const bool fetches = common.z > 0 && common.y > 0 && common.x > 0 && fetched_ < p_.next_count;
    return {.taps = p_.taps + tap,
            .ranges = &ranges,
            .channel = channel,
            .dy = dy,
            .sums = p_.sums + VectorOffset<T>(vector, p_.sums_column) + channel * block<T>,
            .next = fetches ? p_.next[fetched_++] : FetchedBox<T>{dy, p_.dy_strides}};
  }

  const ChannelProduct<T>& p_;
  index_t vectors_, fetched_ = 0;
};

template <class T>
index_t MultiplyChannels(const ChannelProduct<T>& p) {
  return ProductPasses<T>(p).run();
}

}  // namespace

ChannelKernel<float> ChannelKernelF32() { return MultiplyChannels<float>; }
ChannelKernel<double> ChannelKernelF64() { return MultiplyChannels<double>; }

}  // namespace HWY_NAMESPACE
}  // namespace convolume::conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::conv {

HWY_EXPORT(ChannelKernelF32);
HWY_EXPORT(ChannelKernelF64);

template <>
ChannelKernel<float> channel_kernel() noexcept {
  return HWY_DYNAMIC_DISPATCH(ChannelKernelF32)();
}
template <>
ChannelKernel<double> channel_kernel() noexcept {
  return HWY_DYNAMIC_DISPATCH(ChannelKernelF64)();
}

}  // namespace convolume::conv
#endif  // HWY_ONCE
