// The native backend: transforms of volumes from lines, vectorised across lines, after Feinberg (2015), Algorithm 2.
// Planes are transformed first, then the outer lines, which may be written in rotated order. A forward transform has
// two stages:
//   planes   a Z range of some planes at a time: rows along X, whose lanes are rows, into the buffer `slab`,
//            [y][re, im][plane, kx]; then lines along Y, whose lanes are (plane, kx), into the buffer `middle`,
//            [z][re, im][ky, kx]
//   outer    lines along Z, whose lanes are (ky, kx), from `middle` to the spectrum
// Backward transforms run the opposite way. Transforms of fewer dimensions stop at their last axis; their batch takes
// the place of the planes.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "convolume/machine.hpp"
#include "core/checked.hpp"
#include "fft/line.hpp"
#include "fft/line_grid.hpp"
#include "fft/plan_impl.hpp"

namespace convolume::fft {
namespace {

constexpr int most_batch = 8;

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
    Buffers buffers(*this, static_cast<T*>(worker));
    const int stages = outer() ? 2 : 1;
    const index_t first_volume = pass / stages * group_;
    const bool slabs = !outer() || (pass % 2 == 0) == geometry.forward;
    const index_t per_volume = slabs ? slabs_ : in_slab_ ? 1 : blocks_;
    for (index_t item = begin; item < end;) {
      const index_t in_group = item / per_volume, first = item % per_volume;
      T* volume_middle = middle + in_group * middle_elements_;
      if (in_slab_) buffers.slab = volume_middle;
      const index_t volume = outer() ? first_volume + in_group : 0;
      T* volume_spectrum = spectrum + 2 * volume * geometry.spectrum_distance;
      if (slabs) {
        const Slab slab(*this, first);
        T* volume_space = space + (volume * geometry.space_distance + slab.first * plane_stride_) * unit();
        if (geometry.forward) {
          rows_forward(slab, volume_space, volume_spectrum, buffers);
          if (planar()) columns(slab, volume_middle, volume_spectrum, buffers);
        } else {
          if (planar()) columns(slab, volume_middle, volume_spectrum, buffers);
          rows_backward(slab, volume_spectrum, volume_space, buffers);
        }
        ++item;
      } else {
        const index_t items = std::min(end - item, per_volume - first), last = in_slab_ ? blocks_ : first + items;
        for (index_t block = first; block < last; block += z_batch_) {
          outer_lines(block * lanes_, std::min(z_batch_, last - block), volume_middle, volume_spectrum, buffers);
        }
        item += items;
      }
    }
  }

  std::string describe() const override {
    constexpr const char* kinds[] = {"r2c", "c2r", "c2c forward", "c2c backward"};
    return fmt::format("native {} {} {} {} {} {} support {}: x {}{} y {} z {}", version(), x_.kernels().target,
                       name_of(problem.type), kinds[static_cast<int>(problem.kind)], to_string(problem.extent),
                       problem.order == Order::rotated ? "rotated" : "natural", to_string(geometry.support),
                       pairs() ? fmt::format("pairs of {} planes ", slab_planes_) : "", x_.describe(), y_.describe(),
                       z_.describe());
  }

 private:
  /// Offsets of the rows of a Z range: on the space side (from its first plane), and after their transform. Rows are
  /// padded to whole vectors by repeating the first row of the last vector.
  struct Rows {
    index_t count = 0;
    std::vector<std::ptrdiff_t> space, spectrum;
  };
  /// Planes [first, first + planes) of a volume: one Z range.
  struct Slab {
    Slab(const VolumePlan& plan, index_t number)
        : first(number * plan.slab_planes_),
          planes(std::min(plan.slab_planes_, plan.planes_ - first)),
          rows(plan.rows_of_[planes == plan.slab_planes_ ? 0 : 1]) {}
    index_t first, planes;
    const Rows& rows;
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
  /// Returns whether real rows are transformed two at a time, as the real and the imaginary part of one complex row.
  bool pairs() const noexcept { return geometry.real && !x_.has_real(); }
  index_t unit() const noexcept { return geometry.real ? 1 : 2; }  ///< elements of T in one element of the space side
  Points<T> dense(T* data) const noexcept { return {data, point_, lanes_}; }
  Points<const T> source(const T* data) const noexcept { return {data, point_, lanes_}; }

  void init_stages();
  void init_scratch();

  void rows_forward(const Slab& slab, T* space, T* spectrum, const Buffers& buffers) const;
  void rows_backward(const Slab& slab, T* spectrum, T* space, const Buffers& buffers) const;
  void columns(const Slab& slab, T* middle, T* spectrum, const Buffers& buffers) const;
  void outer_lines(index_t first, index_t vectors, T* middle, T* spectrum, const Buffers& buffers) const;

  Rows rows_of_slab(index_t planes) const;
  T* spectrum_rows(const Slab& slab, T* spectrum, const Buffers& buffers) const;
  RowsArguments<T> space_arguments(const Slab& slab, index_t row, T* space, T* points) const;
  RowsArguments<T> complex_rows(T* base, const std::ptrdiff_t* offsets, const Spacing& spacing, T* points,
                                index_t count) const;
  RowsArguments<T> spectrum_arguments(const Slab& slab, index_t row, T* spectrum, const Buffers& buffers,
                                      T* points) const;
  void clear_unsupported(T* points, std::ptrdiff_t point_step, index_t width) const;
  void rows_forward_in_pairs(const Slab& slab, T* space, T* spectrum, const Buffers& buffers) const;
  void rows_backward_in_pairs(const Slab& slab, T* spectrum, T* space, const Buffers& buffers) const;
  /// Returns the first line of a vector of outer lines. In a small volume, which is one item, the last vector overlaps
  /// the vector before it, so that no vector is partly empty.
  index_t first_line(index_t first, index_t vector) const {
    const index_t line = first + vector * lanes_, lines = problem.extent.y * geometry.x_star;
    return in_slab_ && lines >= lanes_ ? std::min(line, lines - lanes_) : line;
  }
  void store_outer_rows(const LineGrid& grid, index_t first, index_t vectors, T* spectrum,
                        const Buffers& buffers) const;

  Line<T> x_, y_, z_;
  index_t lanes_ = 0, point_ = 0;
  index_t planes_ = 1, rows_ = 1;               // of the space side: those inside the support
  index_t plane_stride_ = 0;                    // of the space side, in its elements
  index_t slab_planes_ = 1, slabs_ = 1;         // planes of a Z range; Z ranges per volume
  index_t slab_width_ = 0, slab_elements_ = 0;  // lanes of the buffer `slab`; its elements
  index_t blocks_ = 0;                          // vectors of outer lines
  index_t middle_width_ = 0, middle_elements_ = 0;
  bool in_slab_ = false;                             // small volumes: the only Z range is also `middle`
  index_t group_ = 1;                                // volumes between two barriers
  index_t x_batch_ = 1, y_batch_ = 1, z_batch_ = 1;  // vectors of lines that share calls
  index_t buffer_elements_ = 0;
  bool streams_ = false;         // whether the spectrum is written with non-temporal (streaming) stores
  std::array<Rows, 2> rows_of_;  // of a whole Z range and of the last one
};

template <class T>
void VolumePlan<T>::init_stages() {
  const Geometry& g = geometry;
  const Extent3& n = problem.extent;
  planes_ = outer() ? g.support.z : problem.batch;
  rows_ = g.support.y;
  plane_stride_ = outer() ? g.space_stride.z : g.space_distance;

  // A Z range has as many planes as fit into 384 KiB, less than half of the L2. With more planes, lanes fill the
  // vectors better and runs along Z are longer. If a Z range were more than an eighth of a volume, there would be too
  // few items for several threads. Small volumes do not need several threads.
  constexpr index_t slab_bytes = 384 * 1024, small_bytes = 64 * 1024;
  const index_t plane_bytes = checked_mul(n.y * g.x_star, static_cast<index_t>(2 * sizeof(T)), "fft slab");
  const index_t fills_vectors = (4 * lanes_ + g.x_star - 1) / g.x_star;
  const index_t fits = std::max<index_t>(1, slab_bytes / plane_bytes);
  const index_t share = std::max({fills_vectors, (planes_ + 7) / 8, small_bytes / plane_bytes});
  index_t most = planar() ? std::min({fits, share, planes_}) : std::min(planes_, 4 * lanes_);
  // Rows of a pair share rounding errors. Volumes of a batch must not share a pair, because one volume would change the
  // bits of another.
  if (pairs() && planar() && !outer()) most = 1;
  slabs_ = (planes_ + most - 1) / most;
  slab_planes_ = (planes_ + slabs_ - 1) / slabs_;
  slabs_ = (planes_ + slab_planes_ - 1) / slab_planes_;

  // The width is an odd number of vectors. Rows a power of two apart would compete for few sets of the caches.
  const auto apart = [this](index_t width) { return (round_up(width, lanes_, "fft slab") / lanes_ | 1) * lanes_; };
  slab_width_ = planar() ? apart(slab_planes_ * g.x_star) : 0;
  // Rows shorter than a vector would have to be copied out of `slab` in pieces. If the Z range is the whole volume, its
  // rows stay in `slab`, and lines along Z gather them from there. Backward transforms do not do this, because
  // scattering costs more.
  in_slab_ = g.forward && outer() && slabs_ == 1 && g.x_star < lanes_;
  slab_elements_ = checked_mul(in_slab_ ? n.y : rows_, 2 * slab_width_, "fft slab");
  rows_of_[0] = rows_of_slab(slab_planes_);
  if (planes_ % slab_planes_ != 0) rows_of_[1] = rows_of_slab(planes_ % slab_planes_);
  x_batch_ = x_.together();
  // Longer rows are written without a buffer, which works for one vector at a time.
  y_batch_ = g.x_star < lanes_ ? y_.together() : 1;
  z_batch_ = z_.together();
  const auto cached = static_cast<std::size_t>(machine_model().usable_l3_bytes) / 4;
  streams_ = g.forward && outer() && g.spectrum_stride.z == 1 && g.spectrum_stride.x == g.z_padded &&
             g.spectrum_stride.y == g.x_star * g.z_padded && g.padding == (g.z_padded != n.z) && !problem.unaligned &&
             (problem.batch == 1 || g.spectrum_distance * g.complex_bytes % 64 == 0) && g.spectrum_bytes > cached;
  if (!outer()) {
    pass_items = {slabs_};
    return;
  }
  const index_t lines = checked_mul(n.y, g.x_star, "fft middle");
  blocks_ = (lines + lanes_ - 1) / lanes_;
  middle_width_ = apart(lines);
  middle_elements_ = checked_mul(2 * middle_width_, planes_, "fft middle");
  if (in_slab_) middle_elements_ = std::exchange(slab_elements_, 0);
  constexpr index_t group_bytes = 8 << 20;
  group_ = std::clamp<index_t>(group_bytes / (middle_elements_ * static_cast<index_t>(sizeof(T))), 1, problem.batch);
  for (index_t volume = 0; volume < problem.batch; volume += group_) {
    const index_t volumes = std::min(group_, problem.batch - volume);
    const index_t slab_items = volumes * slabs_, line_items = volumes * (in_slab_ ? 1 : blocks_);
    pass_items.push_back(g.forward ? slab_items : line_items);
    pass_items.push_back(g.forward ? line_items : slab_items);
  }
}

template <class T>
void VolumePlan<T>::init_scratch() {
  const Extent3& n = problem.extent;
  const index_t unit = static_cast<index_t>(64 / sizeof(T));
  // Each buffer holds the points of any line, or the row of a lane that is discarded.
  const auto points = [](index_t batch, index_t length) {
    return checked_mul(batch, checked_add(length, 2, "fft scratch"), "fft scratch");
  };
  const index_t longest = std::max({points(x_batch_, n.x), points(y_batch_, n.y), points(z_batch_, geometry.z_padded)});
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

template <class T>
typename VolumePlan<T>::Rows VolumePlan<T>::rows_of_slab(index_t planes) const {
  const LineGrid space{rows_, unit() * geometry.space_stride.y, unit() * plane_stride_};
  const LineGrid spectrum =
      planar() ? LineGrid{rows_, 2 * slab_width_, geometry.x_star} : LineGrid{1, 0, 2 * geometry.spectrum_distance};
  Rows rows;
  rows.count = checked_mul(planes, rows_, "fft slab");
  const index_t padded = round_up(rows.count, lanes_, "fft slab");
  rows.space.resize(static_cast<std::size_t>(padded));
  rows.spectrum.resize(static_cast<std::size_t>(padded));
  for (index_t row = 0; row < rows.count; row += lanes_) {
    const index_t count = std::min(lanes_, rows.count - row);
    space.offsets(row, count, lanes_, rows.space.data() + row);
    spectrum.offsets(row, count, lanes_, rows.spectrum.data() + row);
  }
  return rows;
}

/// Returns the address from which the offsets of transformed rows count: `slab`, or the spectrum of a one-dimensional
/// transform.
template <class T>
T* VolumePlan<T>::spectrum_rows(const Slab& slab, T* spectrum, const Buffers& buffers) const {
  return planar() ? buffers.slab : spectrum + 2 * slab.first * geometry.spectrum_distance;
}

/// Returns the arguments for one vector of rows on the space side and their dense points.
template <class T>
RowsArguments<T> VolumePlan<T>::space_arguments(const Slab& slab, index_t row, T* space, T* points) const {
  const std::ptrdiff_t* offsets = slab.rows.space.data() + row;
  if (!geometry.real) {
    return complex_rows(space, offsets, {2 * geometry.space_stride.x, 1}, points, geometry.support.x);
  }
  return {.base = space,
          .offsets = offsets,
          .row_step = geometry.space_stride.x,
          .points = points,
          .point_step = lanes_,
          .count = geometry.support.x,
          // If planes are dense, the next rows follow these.
          .ahead = lanes_ * geometry.space_stride.y};
}

template <class T>
RowsArguments<T> VolumePlan<T>::complex_rows(T* base, const std::ptrdiff_t* offsets, const Spacing& spacing, T* points,
                                             index_t count) const {
  if (spacing.interleaved() && spacing.step == 2) {
    return {
        .base = base, .offsets = offsets, .row_step = 1, .points = points, .point_step = lanes_, .count = 2 * count};
  }
  return {.base = base,
          .offsets = offsets,
          .row_step = spacing.step,
          .points = points,
          .point_step = point_,
          .count = count,
          .parts = 2,
          .row_part = spacing.im,
          .point_part = lanes_};
}

template <class T>
RowsArguments<T> VolumePlan<T>::spectrum_arguments(const Slab& slab, index_t row, T* spectrum, const Buffers& buffers,
                                                   T* points) const {
  const Spacing spacing = planar() ? Spacing{1, slab_width_} : Spacing{2 * geometry.spectrum_stride.x, 1};
  return complex_rows(spectrum_rows(slab, spectrum, buffers), slab.rows.spectrum.data() + row, spacing, points,
                      geometry.x_star);
}

/// Clears the points outside the support, `width` elements each.
template <class T>
void VolumePlan<T>::clear_unsupported(T* points, std::ptrdiff_t point_step, index_t width) const {
  for (index_t i = geometry.support.x; i < problem.extent.x; ++i) std::fill_n(points + i * point_step, width, T{0});
}

template <class T>
void VolumePlan<T>::rows_forward(const Slab& slab, T* space, T* spectrum, const Buffers& buffers) const {
  if (pairs()) {
    rows_forward_in_pairs(slab, space, spectrum, buffers);
    return;
  }
  const LineKernels<T>& kernels = x_.kernels();
  const index_t n = problem.extent.x, in_step = geometry.real ? lanes_ : point_;
  const index_t vectors = (slab.rows.count + lanes_ - 1) / lanes_;
  for (index_t first = 0; first < vectors; first += x_batch_) {
    const index_t count = std::min(x_batch_, vectors - first), row = first * lanes_;
    RowsArguments<T> from = space_arguments(slab, row, space, buffers.a);
    from.blocks = count;
    from.block_step = n * in_step;
    kernels.rows_to_points(from);
    if (geometry.real) {
      for (index_t i = 0; i < count; ++i) clear_unsupported(buffers.a + i * n * in_step, in_step, in_step);
      x_.real(buffers.a, lanes_, dense(buffers.b), buffers.line, count, n * in_step, geometry.x_star * point_);
    } else {
      x_.complex_lines(source(buffers.a), dense(buffers.b), buffers.line, geometry.support.x, n, count, n * point_,
                       n * point_);
    }
    RowsArguments<T> to = spectrum_arguments(slab, row, spectrum, buffers, buffers.b);
    to.blocks = count;
    to.block_step = geometry.x_star * point_;
    kernels.points_to_rows(to);
  }
}

/// Transforms two vectors of rows of a volume at a time, as real and imaginary parts. A vector without a partner is its
/// own partner.
template <class T>
void VolumePlan<T>::rows_forward_in_pairs(const Slab& slab, T* space, T* spectrum, const Buffers& buffers) const {
  const LineKernels<T>& kernels = x_.kernels();
  for (index_t row = 0, step = 0; row < slab.rows.count; row += step) {
    const bool single = !planar() || row + lanes_ >= slab.rows.count;
    step = single ? lanes_ : 2 * lanes_;
    const index_t partner = single ? row : row + lanes_;
    for (const index_t half : {index_t{0}, lanes_}) {
      RowsArguments<T> from = space_arguments(slab, half == 0 ? row : partner, space, buffers.a + half);
      from.point_step = point_;
      kernels.rows_to_points(from);
    }
    clear_unsupported(buffers.a, point_, point_);
    x_.complex(source(buffers.a), dense(buffers.a), buffers.line);
    kernels.split_pair(buffers.a, problem.extent.x, buffers.b, buffers.c);
    kernels.points_to_rows(spectrum_arguments(slab, row, spectrum, buffers, buffers.b));
    if (!single) kernels.points_to_rows(spectrum_arguments(slab, partner, spectrum, buffers, buffers.c));
  }
}

template <class T>
void VolumePlan<T>::rows_backward(const Slab& slab, T* spectrum, T* space, const Buffers& buffers) const {
  if (pairs()) {
    rows_backward_in_pairs(slab, spectrum, space, buffers);
    return;
  }
  const LineKernels<T>& kernels = x_.kernels();
  const index_t n = problem.extent.x, out_step = geometry.real ? lanes_ : point_;
  const index_t vectors = (slab.rows.count + lanes_ - 1) / lanes_;
  for (index_t first = 0; first < vectors; first += x_batch_) {
    const index_t count = std::min(x_batch_, vectors - first), row = first * lanes_;
    RowsArguments<T> from = spectrum_arguments(slab, row, spectrum, buffers, buffers.a);
    from.blocks = count;
    from.block_step = geometry.x_star * point_;
    kernels.rows_to_points(from);
    if (geometry.real) {
      x_.hermitian(source(buffers.a), buffers.b, lanes_, buffers.line, count, from.block_step, n * out_step);
    } else {
      x_.complex_lines(source(buffers.a).swapped(), dense(buffers.b).swapped(), buffers.line, n, geometry.support.x,
                       count, n * point_, n * point_);
    }
    RowsArguments<T> to = space_arguments(slab, row, space, buffers.b);
    to.blocks = count;
    to.block_step = n * out_step;
    kernels.points_to_rows(to);
  }
}

template <class T>
void VolumePlan<T>::rows_backward_in_pairs(const Slab& slab, T* spectrum, T* space, const Buffers& buffers) const {
  const LineKernels<T>& kernels = x_.kernels();
  for (index_t row = 0, step = 0; row < slab.rows.count; row += step) {
    const bool single = !planar() || row + lanes_ >= slab.rows.count;
    step = single ? lanes_ : 2 * lanes_;
    const index_t partner = single ? row : row + lanes_;
    kernels.rows_to_points(spectrum_arguments(slab, row, spectrum, buffers, buffers.a));
    kernels.rows_to_points(spectrum_arguments(slab, partner, spectrum, buffers, buffers.b));
    kernels.merge_pair(buffers.a, buffers.b, problem.extent.x, buffers.c);
    x_.complex(source(buffers.c).swapped(), dense(buffers.c).swapped(), buffers.line);
    for (const index_t half : {index_t{0}, lanes_}) {
      if (half != 0 && single) break;
      RowsArguments<T> to = space_arguments(slab, half == 0 ? row : partner, space, buffers.c + half);
      to.point_step = point_;
      kernels.points_to_rows(to);
    }
  }
}

/// Transforms lines along Y between `slab` and `middle`, or between `slab` and the spectrum of a two-dimensional
/// transform.
template <class T>
void VolumePlan<T>::columns(const Slab& slab, T* middle, T* spectrum, const Buffers& buffers) const {
  const LineKernels<T>& kernels = y_.kernels();
  const index_t x_star = geometry.x_star, lines = slab.planes * x_star, n = problem.extent.y;
  const Extent3& stride = geometry.spectrum_stride;
  if (in_slab_) {
    const Points<T> points{buffers.slab, 2 * slab_width_, slab_width_};
    y_.complex_lines({points.data, points.step, points.im}, points, buffers.line, rows_, n,
                     (lines + lanes_ - 1) / lanes_, lanes_, lanes_);
    return;
  }
  const Spacing spacing = outer() ? Spacing{x_star, middle_width_} : Spacing{2 * stride.y, 1};
  const LineGrid grid =
      outer() ? LineGrid{x_star, 1, 2 * middle_width_} : LineGrid{x_star, 2 * stride.x, 2 * geometry.spectrum_distance};
  T* origin = (outer() ? middle : spectrum) + slab.first * grid.outer_step;
  std::array<LaneRun<T>, most_lanes> runs;
  const auto outside = [&](index_t line, index_t buffer) {
    const index_t count = std::min(lanes_, lines - line);
    const int run_count = grid.runs(origin, line, count, spacing.interleaved() ? 2 : 1, runs);
    return RunsArguments<T>{runs.data(), run_count, spacing.step, spacing.im, buffers.a + buffer * n * point_, n};
  };
  for (index_t first = 0; first < lines; first += y_batch_ * lanes_) {
    const index_t vectors = std::min(y_batch_, (lines - first + lanes_ - 1) / lanes_);
    const Points<T> inside{buffers.slab + first, 2 * slab_width_, slab_width_};
    const RunsArguments<T> only = outside(first, 0);
    // A vector of lines that lie side by side needs no buffer.
    const bool direct = vectors == 1 && !spacing.interleaved() && only.run_count == 1 && only.runs[0].count == lanes_;
    const Points<T> memory{only.runs[0].base, spacing.step, spacing.im};
    const Points<T> other = direct ? memory : dense(buffers.a);
    if (geometry.forward) {
      y_.complex_lines({inside.data, inside.step, inside.im}, other, buffers.line, rows_, n, vectors, lanes_,
                       n * point_);
      if (!direct) kernels.points_to_runs(only);
      for (index_t i = 1; i < vectors; ++i) kernels.points_to_runs(outside(first + i * lanes_, i));
    } else {
      if (!direct) kernels.runs_to_points(only);
      for (index_t i = 1; i < vectors; ++i) kernels.runs_to_points(outside(first + i * lanes_, i));
      // The next vector of lines lies beside this one.
      const Points<const T> from{other.data, other.step, other.im, direct ? lanes_ : 0};
      y_.complex_lines(from.swapped(), inside.swapped(), buffers.line, n, rows_, vectors, n * point_, lanes_);
    }
  }
}

/// Transforms `vectors` vectors of lines along Z, from line `first` on, between `middle` and the spectrum.
template <class T>
void VolumePlan<T>::outer_lines(index_t first, index_t vectors, T* middle, T* spectrum, const Buffers& buffers) const {
  const LineKernels<T>& kernels = z_.kernels();
  const Extent3& stride = geometry.spectrum_stride;
  const index_t lines = problem.extent.y * geometry.x_star, n = problem.extent.z;
  const LineGrid grid{geometry.x_star, 2 * stride.x, 2 * stride.y};
  const bool rotated = stride.z == 1;
  const index_t points = geometry.padding ? geometry.z_padded : n;
  // Neighbouring vectors of lines follow each other in memory.
  const std::ptrdiff_t ahead = first + (vectors + 1) * lanes_ <= lines ? vectors * lanes_ : 0;
  const Points<T> inside{middle + first, 2 * middle_width_, middle_width_, ahead};
  std::array<LaneRun<T>, most_lanes> runs;
  const auto outside = [&](index_t vector) {
    const index_t line = first_line(first, vector), count = std::min(lanes_, lines - line);
    const int run_count = grid.runs(spectrum, line, count, 2, runs);
    return RunsArguments<T>{runs.data(), run_count, 2 * stride.z, 1, buffers.a + vector * points * point_, n};
  };
  // Lines of a small volume are gathered from its rows in `slab`.
  const index_t planes = geometry.support.z, slab_line = planes * point_;
  const auto in_slab = [&](index_t vector) {
    const index_t line = first_line(first, vector), count = std::min(lanes_, lines - line);
    const int run_count = LineGrid{geometry.x_star, 1, 2 * slab_width_}.runs(middle, line, count, 1, runs);
    return RunsArguments<T>{runs.data(), run_count, geometry.x_star, slab_width_, buffers.b + vector * slab_line,
                            planes};
  };
  if (geometry.forward) {
    for (index_t i = 0; i < vectors && in_slab_; ++i) kernels.runs_to_points(in_slab(i));
    const Points<const T> from =
        in_slab_ ? source(buffers.b) : Points<const T>{inside.data, inside.step, inside.im, ahead};
    z_.complex_lines(from, dense(buffers.a), buffers.line, planes, n, vectors, in_slab_ ? slab_line : lanes_,
                     points * point_);
    if (rotated) {
      store_outer_rows(grid, first, vectors, spectrum, buffers);
      return;
    }
    for (index_t i = 0; i < vectors; ++i) kernels.points_to_runs(outside(i));
    return;
  }
  if (rotated) {
    std::array<std::ptrdiff_t, most_lanes * most_batch> offsets;
    for (index_t i = 0; i < vectors; ++i) {
      const index_t line = first + i * lanes_;
      grid.offsets(line, std::min(lanes_, lines - line), lanes_, offsets.data() + i * lanes_);
    }
    RowsArguments<T> from = complex_rows(spectrum, offsets.data(), {2, 1}, buffers.a, n);
    from.blocks = vectors;
    from.block_step = points * point_;
    from.ahead = grid.inner_step * lanes_ * vectors;
    kernels.rows_to_points(from);
  } else {
    for (index_t i = 0; i < vectors; ++i) kernels.runs_to_points(outside(i));
  }
  z_.complex_lines(source(buffers.a).swapped(), inside.swapped(), buffers.line, n, planes, vectors, points * point_,
                   lanes_);
}

/// Stores lines in rotated order: rows of the spectrum lie along Z. If rows are padded, zeros follow.
template <class T>
void VolumePlan<T>::store_outer_rows(const LineGrid& grid, index_t first, index_t vectors, T* spectrum,
                                     const Buffers& buffers) const {
  const LineKernels<T>& kernels = z_.kernels();
  const index_t lines = problem.extent.y * geometry.x_star, n = problem.extent.z;
  const index_t points = geometry.padding ? geometry.z_padded : n, row = 2 * points;
  for (index_t i = 0; i < vectors && n < points; ++i) {
    T* buffer = buffers.a + i * points * point_;
    std::fill(buffer + n * point_, buffer + points * point_, T{0});
  }
  // Whole vectors are stored directly. A partial last vector is assembled in a buffer first, and so are all vectors if
  // the stores are non-temporal.
  index_t whole = 0;
  std::array<std::ptrdiff_t, most_lanes * most_batch> offsets;
  for (; !streams_ && whole < vectors && first_line(first, whole) + lanes_ <= lines; ++whole) {
    grid.offsets(first_line(first, whole), lanes_, 0, offsets.data() + whole * lanes_);
  }
  RowsArguments<T> to = complex_rows(spectrum, offsets.data(), {2, 1}, buffers.a, points);
  to.blocks = whole;
  to.block_step = points * point_;
  kernels.points_to_rows(to);
  for (index_t i = whole; i < vectors; ++i) {
    const index_t line = first + i * lanes_, count = std::min(lanes_, lines - line);
    for (index_t lane = 0; lane < lanes_; ++lane) offsets[static_cast<std::size_t>(lane)] = lane * row;
    kernels.points_to_rows(complex_rows(buffers.c, offsets.data(), {2, 1}, buffers.a + i * points * point_, points));
    grid.offsets(line, count, 0, offsets.data());
    if (streams_) {
      kernels.stream(buffers.c, spectrum + offsets[0], count * row);
      continue;
    }
    for (index_t lane = 0; lane < count; ++lane) {
      std::copy_n(buffers.c + lane * row, row, spectrum + offsets[static_cast<std::size_t>(lane)]);
    }
  }
}

}  // namespace

std::shared_ptr<const Plan::Impl> make_native_plan(const Problem& problem, const Options& options) {
  if (auto small = make_halfcomplex_plan(problem, options)) return small;
  if (problem.type == DataType::f32) return std::make_shared<VolumePlan<float>>(problem, options);
  return std::make_shared<VolumePlan<double>>(problem, options);
}

}  // namespace convolume::fft
