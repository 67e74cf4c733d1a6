// The native backend: transforms of volumes from lines, vectorised across lines. After Feinberg (2015), Algorithm 2:
// planes first, then the outer lines, which may be written rotated.
//   slab stage    some planes at a time: rows along X, whose lanes are rows, into a slab [y][re, im][plane, kx];
//   columns
//                 along Y, whose lanes are (plane, kx), into the middle [z][re, im][ky, kx]
//   outer stage   lines along Z, whose lanes are (ky, kx), from the middle to the spectrum
// and the other way round for backward transforms. Transforms of fewer dimensions end where their axes do; their batch
// takes the place of the planes.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "convolume/cpu.hpp"
#include "core/checked.hpp"
#include "fft/line.hpp"
#include "fft/plan_impl.hpp"

namespace convolume::fft {
namespace {

constexpr int most_lanes = 16;

/// Lanes of a vector and where each one's line begins in memory.
template <class T>
struct Lanes {
  std::array<T*, most_lanes> base;
  int count = 0;

  /// Lanes without a line share `spare`.
  void fill(T* spare) {
    for (int lane = count; lane < most_lanes; ++lane) base[static_cast<std::size_t>(lane)] = spare;
  }
};

/// Lines numbered (outer, inner), inner fastest, and the distances between their first elements.
struct LineGrid {
  index_t inner;  ///< lines side by side
  std::ptrdiff_t inner_step, outer_step;

  /// Lines first .. first + count.
  template <class T>
  Lanes<T> lanes(T* origin, index_t first, index_t count) const {
    Lanes<T> lanes;
    lanes.count = static_cast<int>(count);
    index_t i = first % inner;
    T* row = origin + first / inner * outer_step;
    for (int lane = 0; lane < lanes.count; ++lane) {
      lanes.base[static_cast<std::size_t>(lane)] = row + i * inner_step;
      if (++i == inner) {
        i = 0;
        row += outer_step;
      }
    }
    return lanes;
  }
  /// The same as runs of neighbours `apart` elements from each other.
  template <class T>
  int runs(T* origin, index_t first, index_t count, std::ptrdiff_t apart,
           std::array<LaneRun<T>, most_lanes>& out) const {
    const bool one_row = inner * inner_step == outer_step;
    index_t i = first % inner;
    T* row = origin + first / inner * outer_step;
    int n = 0;
    for (index_t lane = 0; lane < count;) {
      const index_t left = one_row ? count - lane : std::min(count - lane, inner - i);
      const index_t together = inner_step == apart ? left : 1;
      out[static_cast<std::size_t>(n++)] = {row + i * inner_step, static_cast<int>(lane), static_cast<int>(together)};
      lane += together;
      i += together;
      if (i >= inner) {
        row += i / inner * outer_step;
        i %= inner;
      }
    }
    return n;
  }
};

/// How complex lines lie in memory: elements between points and from real to imaginary part, 1 where they interleave.
struct Spacing {
  std::ptrdiff_t step, im;
  bool interleaved() const { return im == 1; }
};

template <class T>
class VolumePlan final : public Plan::Impl {
 public:
  VolumePlan(const Problem& p, const Options& o)
      : Impl(p, o), x_(p.extent.x, o.prime), y_(p.extent.y, o.prime), z_(p.extent.z, o.prime) {
    lanes_ = x_.lanes();
    point_ = 2 * lanes_;
    init_stages();
    init_scratch();
  }

  void run(int pass, index_t begin, index_t end, const void* in, void* out, void* shared, void* worker) const override {
    T* space = static_cast<T*>(const_cast<void*>(geometry.forward ? in : out));
    T* spectrum = static_cast<T*>(const_cast<void*>(geometry.forward ? out : in));
    T* middle = static_cast<T*>(shared);
    const Buffers buffers(*this, static_cast<T*>(worker));
    const int stages = outer() ? 2 : 1;
    const index_t first_volume = pass / stages * group_;
    const bool slabs = !outer() || (pass % 2 == 0) == geometry.forward;
    for (index_t item = begin; item < end; ++item) {
      const index_t per_volume = slabs ? slabs_ : blocks_, in_group = item / per_volume;
      T* volume_middle = middle + in_group * middle_elements_;
      const index_t volume = outer() ? first_volume + in_group : 0;
      T* volume_spectrum = spectrum + 2 * volume * geometry.spectrum_distance;
      if (!slabs) {
        outer_lines(item % per_volume * lanes_, volume_middle, volume_spectrum, buffers);
        continue;
      }
      const Slab slab{item % per_volume * slab_planes_,
                      std::min(slab_planes_, planes_ - item % per_volume * slab_planes_)};
      T* volume_space = space + volume * geometry.space_distance * unit();
      if (geometry.forward) {
        rows_forward(slab, volume_space, volume_spectrum, buffers);
        if (planar()) columns(slab, volume_middle, volume_spectrum, buffers);
      } else {
        if (planar()) columns(slab, volume_middle, volume_spectrum, buffers);
        rows_backward(slab, volume_spectrum, volume_space, buffers);
      }
    }
  }

  std::string describe() const override {
    return fmt::format("native {} {} {} {} {}: x {}{} y {} z {}", x_.kernels().target, name_of(problem.type),
                       to_string(problem.extent), problem.order == Order::rotated ? "rotated" : "natural",
                       geometry.forward ? "forward" : "backward", pairs() ? "pairs " : "", x_.describe(), y_.describe(),
                       z_.describe());
  }

 private:
  /// Planes [first, first + planes) of a volume.
  struct Slab {
    index_t first, planes;
  };
  /// The parts of a worker's scratch.
  struct Buffers {
    Buffers(const VolumePlan& plan, T* scratch)
        : slab(scratch),
          a(slab + plan.slab_elements_),
          b(a + plan.buffer_elements_),
          c(b + plan.buffer_elements_),
          line(c + plan.buffer_elements_) {}
    T *slab, *a, *b, *c, *line;
  };

  bool outer() const noexcept { return problem.extent.z > 1; }
  bool planar() const noexcept { return outer() || problem.extent.y > 1; }
  /// Whether real rows are transformed two at a time, as real and imaginary part of one.
  bool pairs() const noexcept { return geometry.real && !x_.has_real(); }
  index_t unit() const noexcept { return geometry.real ? 1 : 2; }  ///< elements of T in one of the space side
  Points<T> dense(T* data) const noexcept { return {data, point_, lanes_}; }
  Points<const T> source(const T* data) const noexcept { return {data, point_, lanes_}; }

  void init_stages();
  void init_scratch();

  void rows_forward(const Slab& slab, T* space, T* spectrum, const Buffers& buffers) const;
  void rows_backward(const Slab& slab, T* spectrum, T* space, const Buffers& buffers) const;
  void columns(const Slab& slab, T* middle, T* spectrum, const Buffers& buffers) const;
  void outer_lines(index_t first, T* middle, T* spectrum, const Buffers& buffers) const;

  Lanes<T> space_rows(const Slab& slab, index_t first, T* space) const;
  Lanes<T> spectrum_rows(const Slab& slab, index_t first, T* spectrum, const Buffers& buffers) const;
  Spacing spectrum_row_spacing() const;
  void load_space(const Lanes<T>& rows, T* points, std::ptrdiff_t point_step) const;
  void store_space(const Lanes<T>& rows, const T* points, std::ptrdiff_t point_step) const;
  void load_rows(const Lanes<T>& rows, const Spacing& spacing, T* points, index_t count) const;
  void store_rows(const Lanes<T>& rows, const Spacing& spacing, T* points, index_t count) const;

  Line<T> x_, y_, z_;
  index_t lanes_ = 0, point_ = 0;
  index_t planes_ = 1, rows_ = 1;               // of the space side that hold something or are wanted
  index_t plane_stride_ = 0;                    // of the space side, in its elements
  index_t slab_planes_ = 1, slabs_ = 1;         // per volume
  index_t slab_width_ = 0, slab_elements_ = 0;  // lanes of a slab; elements of one
  index_t blocks_ = 0;                          // vectors of outer lines
  index_t middle_width_ = 0, middle_elements_ = 0;
  index_t group_ = 1;  // volumes between two barriers
  index_t buffer_elements_ = 0;
};

template <class T>
void VolumePlan<T>::init_stages() {
  const Geometry& g = geometry;
  const Extent3& n = problem.extent;
  planes_ = outer() ? g.support.z : problem.batch;
  rows_ = g.support.y;
  plane_stride_ = outer() ? g.space_stride.z : g.space_distance;

  // As many planes as half of the L2 holds: their lanes fill vectors better, and runs along Z get longer. More than an
  // eighth of a volume would leave too few items for several threads.
  constexpr index_t slab_bytes = 384 * 1024;
  const index_t plane_bytes = checked_mul(n.y * g.x_star, static_cast<index_t>(2 * sizeof(T)), "fft slab");
  const index_t fills_vectors = (4 * lanes_ + g.x_star - 1) / g.x_star;
  const index_t fits = std::max<index_t>(1, slab_bytes / plane_bytes);
  const index_t share = std::max(fills_vectors, (planes_ + 7) / 8);
  slab_planes_ = planar() ? std::min({fits, share, planes_}) : std::min(planes_, 4 * lanes_);
  slabs_ = (planes_ + slab_planes_ - 1) / slab_planes_;

  // Distances that are no multiple of a page: rows of one lane would else meet in few sets of the caches.
  const auto apart = [this](index_t width) {
    width = round_up(width, lanes_, "fft slab");
    return 2 * width * static_cast<index_t>(sizeof(T)) % 4096 == 0 ? width + lanes_ : width;
  };
  slab_width_ = planar() ? apart(slab_planes_ * g.x_star) : 0;
  slab_elements_ = checked_mul(rows_, 2 * slab_width_, "fft slab");
  if (!outer()) {
    pass_items = {slabs_};
    return;
  }
  const index_t lines = checked_mul(n.y, g.x_star, "fft middle");
  blocks_ = (lines + lanes_ - 1) / lanes_;
  middle_width_ = apart(lines);
  middle_elements_ = checked_mul(2 * middle_width_, planes_, "fft middle");
  constexpr index_t group_bytes = 8 << 20;
  group_ = std::clamp<index_t>(group_bytes / (middle_elements_ * static_cast<index_t>(sizeof(T))), 1, problem.batch);
  for (index_t volume = 0; volume < problem.batch; volume += group_) {
    const index_t volumes = std::min(group_, problem.batch - volume);
    const index_t slab_items = volumes * slabs_, line_items = volumes * blocks_;
    pass_items.push_back(g.forward ? slab_items : line_items);
    pass_items.push_back(g.forward ? line_items : slab_items);
  }
}

template <class T>
void VolumePlan<T>::init_scratch() {
  const Extent3& n = problem.extent;
  const index_t unit = static_cast<index_t>(64 / sizeof(T));
  // Each buffer holds the points of any line, or a row of a lane that nobody wants.
  const index_t longest = std::max({n.x, n.y, geometry.z_padded}) + 2;
  buffer_elements_ = round_up(checked_mul(point_, longest, "fft scratch"), unit);
  slab_elements_ = round_up(slab_elements_, unit, "fft scratch");
  const index_t line = std::max({x_.scratch_elements(), y_.scratch_elements(), z_.scratch_elements()});
  const index_t worker = checked_add(checked_add(slab_elements_, 3 * buffer_elements_, "fft scratch"),
                                     round_up(line, unit, "fft scratch"), "fft scratch");
  const auto bytes = [](index_t elements) {
    return static_cast<std::size_t>(checked_mul(elements, static_cast<index_t>(sizeof(T)), "fft scratch"));
  };
  worker_bytes = bytes(worker);
  middle_elements_ = round_up(middle_elements_, unit, "fft scratch");
  shared_bytes = bytes(checked_mul(middle_elements_, group_, "fft scratch"));
}

/// Rows first .. of a slab, on the space side. Lanes beyond the last row repeat the first one.
template <class T>
Lanes<T> VolumePlan<T>::space_rows(const Slab& slab, index_t first, T* space) const {
  const LineGrid grid{rows_, unit() * geometry.space_stride.y, unit() * plane_stride_};
  auto lanes = grid.lanes(space + slab.first * grid.outer_step, first, std::min(lanes_, slab.planes * rows_ - first));
  lanes.fill(lanes.base[0]);
  return lanes;
}

/// The same rows after their transform: in the slab, or, of one dimension, in the spectrum.
template <class T>
Lanes<T> VolumePlan<T>::spectrum_rows(const Slab& slab, index_t first, T* spectrum, const Buffers& buffers) const {
  const LineGrid grid =
      planar() ? LineGrid{rows_, 2 * slab_width_, geometry.x_star} : LineGrid{1, 0, 2 * geometry.spectrum_distance};
  T* origin = planar() ? buffers.slab : spectrum + slab.first * grid.outer_step;
  auto lanes = grid.lanes(origin, first, std::min(lanes_, slab.planes * rows_ - first));
  lanes.fill(lanes.base[0]);
  return lanes;
}

template <class T>
Spacing VolumePlan<T>::spectrum_row_spacing() const {
  if (planar()) return {1, slab_width_};
  return {2 * geometry.spectrum_stride.x, 1};
}

template <class T>
void VolumePlan<T>::load_rows(const Lanes<T>& rows, const Spacing& spacing, T* points, index_t count) const {
  const auto load = x_.kernels().rows_to_points;
  if (spacing.interleaved() && spacing.step == 2) {
    load({rows.base.data(), 1, points, lanes_, 2 * count});
    return;
  }
  Lanes<T> imaginary = rows;
  for (T*& base : imaginary.base) base += spacing.im;
  load({rows.base.data(), spacing.step, points, point_, count});
  load({imaginary.base.data(), spacing.step, points + lanes_, point_, count});
}

template <class T>
void VolumePlan<T>::store_rows(const Lanes<T>& rows, const Spacing& spacing, T* points, index_t count) const {
  const auto store = x_.kernels().points_to_rows;
  if (spacing.interleaved() && spacing.step == 2) {
    store({rows.base.data(), 1, points, lanes_, 2 * count});
    return;
  }
  Lanes<T> imaginary = rows;
  for (T*& base : imaginary.base) base += spacing.im;
  store({rows.base.data(), spacing.step, points, point_, count});
  store({imaginary.base.data(), spacing.step, points + lanes_, point_, count});
}

/// Real rows of the support as points, zeros behind them.
template <class T>
void VolumePlan<T>::load_space(const Lanes<T>& rows, T* points, std::ptrdiff_t point_step) const {
  // The next rows follow these where a plane is dense.
  const std::ptrdiff_t ahead = lanes_ * geometry.space_stride.y;
  x_.kernels().rows_to_points(
      {rows.base.data(), geometry.space_stride.x, points, point_step, geometry.support.x, ahead});
  for (index_t i = geometry.support.x; i < problem.extent.x; ++i) std::fill_n(points + i * point_step, lanes_, T{0});
}

template <class T>
void VolumePlan<T>::store_space(const Lanes<T>& rows, const T* points, std::ptrdiff_t point_step) const {
  x_.kernels().points_to_rows(
      {rows.base.data(), geometry.space_stride.x, const_cast<T*>(points), point_step, geometry.support.x});
}

template <class T>
void VolumePlan<T>::rows_forward(const Slab& slab, T* space, T* spectrum, const Buffers& buffers) const {
  const Spacing spacing = spectrum_row_spacing();
  const index_t rows = slab.planes * rows_, n = problem.extent.x;
  for (index_t row = 0; row < rows; row += lanes_) {
    const Lanes<T> from = space_rows(slab, row, space), to = spectrum_rows(slab, row, spectrum, buffers);
    if (!geometry.real) {
      load_rows(from, {2 * geometry.space_stride.x, 1}, buffers.a, geometry.support.x);
      x_.complex(source(buffers.a), dense(buffers.b), buffers.line, geometry.support.x, n);
      store_rows(to, spacing, buffers.b, n);
    } else if (!pairs()) {
      load_space(from, buffers.a, lanes_);
      x_.real(buffers.a, lanes_, dense(buffers.b), buffers.line);
      store_rows(to, spacing, buffers.b, geometry.x_star);
    } else {
      // The last rows may have no partner and are then their own.
      const index_t partner = row + lanes_ < rows ? row + lanes_ : row;
      load_space(from, buffers.a, point_);
      load_space(space_rows(slab, partner, space), buffers.a + lanes_, point_);
      x_.complex(source(buffers.a), dense(buffers.a), buffers.line);
      x_.kernels().split_pair(buffers.a, n, buffers.b, buffers.c);
      store_rows(to, spacing, buffers.b, geometry.x_star);
      if (partner != row) {
        store_rows(spectrum_rows(slab, partner, spectrum, buffers), spacing, buffers.c, geometry.x_star);
      }
      row = partner;
    }
  }
}

template <class T>
void VolumePlan<T>::rows_backward(const Slab& slab, T* spectrum, T* space, const Buffers& buffers) const {
  const Spacing spacing = spectrum_row_spacing();
  const index_t rows = slab.planes * rows_, n = problem.extent.x;
  for (index_t row = 0; row < rows; row += lanes_) {
    const Lanes<T> to = space_rows(slab, row, space);
    load_rows(spectrum_rows(slab, row, spectrum, buffers), spacing, buffers.a, geometry.x_star);
    if (!geometry.real) {
      x_.complex(source(buffers.a).swapped(), dense(buffers.b).swapped(), buffers.line, n, geometry.support.x);
      store_rows(to, {2 * geometry.space_stride.x, 1}, buffers.b, geometry.support.x);
    } else if (!pairs()) {
      x_.hermitian(source(buffers.a), buffers.b, lanes_, buffers.line);
      store_space(to, buffers.b, lanes_);
    } else {
      const index_t partner = row + lanes_ < rows ? row + lanes_ : row;
      load_rows(spectrum_rows(slab, partner, spectrum, buffers), spacing, buffers.b, geometry.x_star);
      x_.kernels().merge_pair(buffers.a, buffers.b, n, buffers.c);
      x_.complex(source(buffers.c).swapped(), dense(buffers.c).swapped(), buffers.line);
      store_space(to, buffers.c, point_);
      if (partner != row) store_space(space_rows(slab, partner, space), buffers.c + lanes_, point_);
      row = partner;
    }
  }
}

/// Lines along Y between the slab and the middle, or, of two dimensions, the spectrum.
template <class T>
void VolumePlan<T>::columns(const Slab& slab, T* middle, T* spectrum, const Buffers& buffers) const {
  const index_t x_star = geometry.x_star, lines = slab.planes * x_star;
  const Extent3& stride = geometry.spectrum_stride;
  const Spacing spacing = outer() ? Spacing{x_star, middle_width_} : Spacing{2 * stride.y, 1};
  const LineGrid grid =
      outer() ? LineGrid{x_star, 1, 2 * middle_width_} : LineGrid{x_star, 2 * stride.x, 2 * geometry.spectrum_distance};
  T* origin = (outer() ? middle : spectrum) + slab.first * grid.outer_step;
  for (index_t first = 0; first < lines; first += lanes_) {
    const index_t count = std::min(lanes_, lines - first);
    std::array<LaneRun<T>, most_lanes> runs;
    const int run_count = grid.runs(origin, first, count, spacing.interleaved() ? 2 : 1, runs);
    const bool direct = !spacing.interleaved() && run_count == 1 && count == lanes_;
    const Points<T> inside{buffers.slab + first, 2 * slab_width_, slab_width_};
    const Points<const T> inside_source{inside.data, inside.step, inside.im};
    const RunsArguments<T> outside{runs.data(), run_count, spacing.step, spacing.im, buffers.a, problem.extent.y};
    const Points<T> memory{runs[0].base, spacing.step, spacing.im};
    if (geometry.forward) {
      y_.complex(inside_source, direct ? memory : dense(buffers.a), buffers.line, rows_, problem.extent.y);
      if (!direct) y_.kernels().points_to_runs(outside);
    } else {
      if (!direct) y_.kernels().runs_to_points(outside);
      const Points<const T> from{direct ? memory.data : buffers.a, direct ? memory.step : point_,
                                 direct ? memory.im : lanes_};
      y_.complex(from.swapped(), inside.swapped(), buffers.line, problem.extent.y, rows_);
    }
  }
}

/// Lines along Z, from `first`, between the middle and the spectrum.
template <class T>
void VolumePlan<T>::outer_lines(index_t first, T* middle, T* spectrum, const Buffers& buffers) const {
  const Extent3& stride = geometry.spectrum_stride;
  const index_t lines = problem.extent.y * geometry.x_star, n = problem.extent.z;
  const index_t count = std::min(lanes_, lines - first);
  const LineGrid grid{geometry.x_star, 2 * stride.x, 2 * stride.y};
  // Neighbouring vectors of lines follow each other.
  const std::ptrdiff_t ahead = first + 2 * lanes_ <= lines ? lanes_ : 0;
  const Points<const T> inside_source{middle + first, 2 * middle_width_, middle_width_, ahead};
  const Points<T> inside{middle + first, 2 * middle_width_, middle_width_};
  std::array<LaneRun<T>, most_lanes> runs;
  const bool rotated = stride.z == 1;
  const int run_count = rotated ? 0 : grid.runs(spectrum, first, count, 2, runs);
  const RunsArguments<T> outside{runs.data(), run_count, 2 * stride.z, 1, buffers.a, n};
  if (geometry.forward) {
    z_.complex(inside_source, dense(buffers.a), buffers.line, geometry.support.z, n);
    if (!rotated) {
      z_.kernels().points_to_runs(outside);
      return;
    }
    const index_t points = geometry.padding ? geometry.z_padded : n;
    std::fill(buffers.a + n * point_, buffers.a + points * point_, T{0});
    auto lanes = grid.lanes(spectrum, first, count);
    lanes.fill(buffers.c);
    store_rows(lanes, {2, 1}, buffers.a, points);
  } else {
    if (rotated) {
      auto lanes = grid.lanes(spectrum, first, count);
      lanes.fill(lanes.base[0]);
      load_rows(lanes, {2, 1}, buffers.a, n);
    } else {
      z_.kernels().runs_to_points(outside);
    }
    z_.complex(source(buffers.a).swapped(), inside.swapped(), buffers.line, n, geometry.support.z);
  }
}

}  // namespace

std::shared_ptr<const Plan::Impl> make_native_plan(const Problem& problem, const Options& options) {
  if (problem.type == DataType::f32) return std::make_shared<VolumePlan<float>>(problem, options);
  return std::make_shared<VolumePlan<double>>(problem, options);
}

}  // namespace convolume::fft
