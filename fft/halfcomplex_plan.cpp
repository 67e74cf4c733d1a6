// The native backend for real volumes that fit into the caches. Z is transformed first. Therefore only one of the three
// axes is transposed into lanes, and this happens while the numbers are still real. The steps of a forward transform
// are:
//   lines along Z    real, lanes are (y, x) as they lie: half-complex lines [kz][re, im][y, x]
//   transpose        lanes become (kz, re or im): points [y][x]
//   planes           lines along X (real), then along Y (complex): every lane is an independent plane
//   rows             frequencies kz and -kz from a plane of real and a plane of imaginary parts: [ky][kx][kz]
//   natural order    rows become planes [kz][ky][kx], if the spectrum is in natural order
// Backward transforms run these steps in the opposite order. A volume is one item.
#include <algorithm>
#include <complex>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "convolume/cpu.hpp"
#include "core/checked.hpp"
#include "fft/line.hpp"
#include "fft/plan_impl.hpp"

namespace convolume::fft {
namespace {

/// Transposes a matrix of `rows` x `columns` numbers whose rows begin `from_row` numbers apart. A cache line of the
/// target is filled at a time.
template <class T>
void transpose(const std::complex<T>* from, index_t from_row, index_t rows, index_t columns, std::complex<T>* to,
               index_t to_row) {
  constexpr auto together = static_cast<index_t>(64 / sizeof(std::complex<T>));
  for (index_t row = 0; row < rows; row += together) {
    const index_t end = std::min(row + together, rows);
    for (index_t column = 0; column < columns; ++column) {
      for (index_t i = row; i < end; ++i) to[column * to_row + i] = from[i * from_row + column];
    }
  }
}

template <class T>
class HalfcomplexPlan final : public Plan::Impl {
 public:
  HalfcomplexPlan(const Problem& p, const Options& o) : HalfcomplexPlan(p, o, better_kernels(p.extent.z)) {}

  /// Returns whether this plan supports the layout and the size of a problem, and the options allow it. The factors of
  /// its extents are not considered.
  static bool may_apply(const Problem& problem, const Options& options) {
    const Geometry g(problem);
    const Extent3& n = problem.extent;
    const bool rotated = problem.order == Order::rotated;
    const Extent3 strides =
        rotated ? Extent3{1, g.x_star * g.z_padded, g.z_padded} : Extent3{n.y * g.x_star, g.x_star, 1};
    return g.real && (rotated || options.z_first) && !problem.in_place && n.z > 1 && n.y > 1 && n.x > 1 &&
           g.support == n && g.space_stride.x == 1 && g.space_stride.y == n.x && g.spectrum_stride == strides &&
           g.padding == (rotated && g.z_padded != n.z) &&
           static_cast<std::size_t>(g.spectrum_elements) * g.complex_bytes <=
               (rotated ? most_bytes : most_natural_bytes);
  }
  /// Returns whether this plan can transform its problem, for which may_apply() must hold. If not, the plan must not be
  /// used.
  bool applies() const noexcept {
    return x_.kernels().halfcomplex_to_rows != nullptr && x_.has_real() && z_.has_real() && plane() >= lanes() &&
           2 * problem.extent.z >= lanes();
  }

  void run(int, index_t begin, index_t end, const void* in, void* out, void*, void* worker) const override {
    T* space = static_cast<T*>(const_cast<void*>(geometry.forward ? in : out));
    T* spectrum = static_cast<T*>(const_cast<void*>(geometry.forward ? out : in));
    const Buffers buffers(*this, static_cast<T*>(worker));
    for (index_t volume = begin; volume < end; ++volume) {
      T* volume_space = space + volume * geometry.space_distance;
      T* volume_spectrum = spectrum + 2 * volume * geometry.spectrum_distance;
      if (geometry.forward) {
        forward(volume_space, volume_spectrum, buffers);
      } else {
        backward(volume_spectrum, volume_space, buffers);
      }
    }
  }

  std::string describe() const override {
    return fmt::format("native {} {} {} {} {} {} half-complex: z {} x {} y {}", version(), x_.kernels().target,
                       name_of(problem.type), geometry.forward ? "r2c" : "c2r", to_string(problem.extent),
                       rotated() ? "rotated" : "natural", z_.describe(), x_.describe(), y_.describe());
  }

 private:
  // Half of the L2. Above this size, the plan that works on blocks of planes is faster.
  static constexpr std::size_t most_bytes = 512 * 1024;
  // Rows that become planes pass through the L1 and L2 once more.
  static constexpr std::size_t most_natural_bytes = 96 * 1024;

  HalfcomplexPlan(const Problem& p, const Options& o, const LineKernels<T>& kernels)
      : Impl(p, o),
        x_(p.extent.x, o.prime, kernels),
        y_(p.extent.y, o.prime, kernels),
        z_(p.extent.z, o.prime, kernels) {
    if (!applies()) return;
    init_vectors();
    init_scratch();
    pass_items = {p.batch};
  }

  static bool is_packed(index_t n, index_t lanes) { return n % lanes == 0; }
  /// Returns the number of lanes of the real and imaginary parts of n/2 + 1 frequencies, rounded up to whole vectors.
  static index_t width_of(index_t n, index_t lanes) {
    return round_up(is_packed(n, lanes) ? n : 2 * (n / 2 + 1), lanes, "fft scratch");
  }
  /// Chooses between whole and half vectors. Half vectors leave fewer lanes idle, but take twice the instructions for
  /// the others.
  static LineKernels<T> better_kernels(index_t n) {
    const auto whole = LineKernels<T>::of(Width::whole), half = LineKernels<T>::of(Width::half);
    constexpr double cost_of_half = 1.5;
    const auto width = [n](const LineKernels<T>& kernels) { return static_cast<double>(width_of(n, kernels.lanes)); };
    return width(half) * cost_of_half < width(whole) ? half : whole;
  }

  /// The parts of a worker's scratch.
  struct Buffers {
    Buffers(const HalfcomplexPlan& plan, T* scratch)
        : halfcomplex(scratch),
          points(halfcomplex + plan.halfcomplex_elements_),
          planes(points + plan.points_elements_),
          rows(planes + plan.planes_elements_),
          line(rows + plan.rows_elements_) {}
    T *halfcomplex, *points, *planes, *rows, *line;
  };

  void init_vectors();
  void init_scratch();
  void forward(T* space, T* spectrum, const Buffers& buffers) const;
  void backward(T* spectrum, T* space, const Buffers& buffers) const;
  void lines_along_z(T* space, const Buffers& buffers) const;
  void lines_along_z(T* space, index_t first, index_t vectors, const Buffers& buffers) const;
  void exchange(const Buffers& buffers) const;
  void planes(const Buffers& buffers) const;
  void rows(T* spectrum, const Buffers& buffers) const;
  void rotated_rows(T* spectrum, const Buffers& buffers) const;

  bool rotated() const noexcept { return problem.order == Order::rotated; }
  index_t lanes() const noexcept { return x_.lanes(); }
  index_t plane() const noexcept { return problem.extent.y * problem.extent.x; }

  Line<T> x_, y_, z_;
  index_t halfcomplex_width_ = 0;  // elements between the points of a half-complex line, which are planes (y, x)
  bool packed_ = false;            // whether re n/2 takes the place of im 0, which is zero
  index_t width_ = 0;              // number of (kz, re or im) lanes, rounded up to whole vectors
  index_t row_elements_ = 0;       // elements between rows of transformed planes
  index_t halfcomplex_elements_ = 0, points_elements_ = 0, planes_elements_ = 0;
  index_t rows_elements_ = 0;                  // of the rotated spectrum, if the spectrum is in natural order
  std::vector<std::ptrdiff_t> offsets_;        // of half-complex lines, one per lane
  std::vector<HalfcomplexVector<T>> vectors_;  // of a row (forward) or of the lanes (backward)
};

template <class T>
void HalfcomplexPlan<T>::init_vectors() {
  const index_t n = problem.extent.z, pairs = lanes() / 2;
  packed_ = is_packed(n, lanes());
  width_ = width_of(n, lanes());
  const index_t last = packed_ ? n / 2 - 1 : n / 2;  // largest frequency that the lanes hold as a pair
  const index_t sources = (geometry.forward ? width_ / 2 : geometry.z_padded) - pairs;
  const index_t count = geometry.forward ? geometry.z_padded / pairs : width_ / lanes();
  for (index_t first = 0; first < count * pairs; first += pairs) {
    HalfcomplexVector<T> vector;
    // The mirror images of frequencies first .. first + pairs are n - first downwards.
    const index_t mirror = std::clamp<index_t>(n - first - pairs + 1, 0, sources);
    vector.mirror = 2 * mirror;
    for (index_t pair = 0; pair < pairs; ++pair) {
      const index_t k = first + pair;
      const bool low = geometry.forward ? k <= last : k == 0;
      const bool high = geometry.forward ? k > n / 2 && k < n : k > 0 && k <= last;
      vector.has_low |= low;
      vector.has_high |= high;
      for (const index_t part : {index_t{0}, index_t{1}}) {
        const auto lane = static_cast<std::size_t>(2 * pair + part);
        if (low) std::memset(&vector.low[lane], 0xff, sizeof(T));
        if (!high) continue;
        std::memset(&vector.high[lane], 0xff, sizeof(T));
        vector.lanes[lane] = static_cast<typename HalfcomplexVector<T>::Index>(2 * (n - k - mirror) + part);
      }
    }
    vectors_.push_back(vector);
  }
}

template <class T>
void HalfcomplexPlan<T>::init_scratch() {
  const Extent3& n = problem.extent;
  const index_t unit = static_cast<index_t>(64 / sizeof(T));
  // The distance is an odd number of cache lines. Lines a power of two apart would compete for few sets of the cache.
  halfcomplex_width_ = (round_up(plane(), unit, "fft scratch") / unit | 1) * unit;
  const index_t lines = 2 * (n.z / 2 + 1), idle = geometry.forward ? 0 : lines;
  // Lanes without a line read the first line (forward) and write behind the last one (backward).
  halfcomplex_elements_ = checked_mul(halfcomplex_width_, lines + 1, "fft scratch");
  for (index_t lane = 0; lane < width_; ++lane) {
    offsets_.push_back(halfcomplex_width_ * (packed_ && lane == 1 ? n.z : lane < lines ? lane : idle));
  }
  points_elements_ = round_up(checked_mul(plane(), width_, "fft scratch"), unit, "fft scratch");
  row_elements_ = checked_mul(geometry.x_star, 2 * width_, "fft scratch");
  row_elements_ = (round_up(row_elements_, unit, "fft scratch") / unit | 1) * unit;
  planes_elements_ = checked_mul(n.y, row_elements_, "fft scratch");
  if (!rotated()) rows_elements_ = checked_mul(n.y * geometry.x_star, 2 * geometry.z_padded, "fft scratch");
  const index_t line = std::max({x_.scratch_elements(), y_.scratch_elements(), z_.scratch_elements()});
  const index_t elements =
      halfcomplex_elements_ + points_elements_ + planes_elements_ + rows_elements_ + round_up(line, unit);
  worker_bytes = static_cast<std::size_t>(elements) * sizeof(T);
}

template <class T>
void HalfcomplexPlan<T>::forward(T* space, T* spectrum, const Buffers& buffers) const {
  lines_along_z(space, buffers);
  exchange(buffers);
  planes(buffers);
  rows(spectrum, buffers);
}

template <class T>
void HalfcomplexPlan<T>::backward(T* spectrum, T* space, const Buffers& buffers) const {
  rows(spectrum, buffers);
  planes(buffers);
  exchange(buffers);
  // Packed lanes hold no imaginary parts of the frequencies 0 and n/2, which are real.
  for (const index_t line : {index_t{1}, problem.extent.z + 1}) {
    if (packed_) std::fill_n(buffers.halfcomplex + line * halfcomplex_width_, plane(), T{0});
  }
  lines_along_z(space, buffers);
}

template <class T>
void HalfcomplexPlan<T>::lines_along_z(T* space, const Buffers& buffers) const {
  const index_t whole = plane() / lanes();
  lines_along_z(space, 0, whole, buffers);
  // The last vector of a plane may overlap the vector before it.
  if (whole * lanes() < plane()) lines_along_z(space, plane() - lanes(), 1, buffers);
}

/// Transforms `vectors` vectors of lines along Z. The first lane is column `first` of the planes.
template <class T>
void HalfcomplexPlan<T>::lines_along_z(T* space, index_t first, index_t vectors, const Buffers& buffers) const {
  const Points<T> lines{buffers.halfcomplex + first, 2 * halfcomplex_width_, halfcomplex_width_};
  const std::ptrdiff_t step = geometry.space_stride.z;
  if (geometry.forward) {
    z_.real(space + first, step, lines, buffers.line, vectors, lanes(), lanes());
  } else {
    z_.hermitian({lines.data, lines.step, lines.im}, space + first, step, buffers.line, vectors, lanes(), lanes());
  }
}

template <class T>
void HalfcomplexPlan<T>::exchange(const Buffers& buffers) const {
  const RowsArguments<T> arguments{.base = buffers.halfcomplex,
                                   .offsets = offsets_.data(),
                                   .row_step = 1,
                                   .points = buffers.points,
                                   .point_step = width_,
                                   .count = plane(),
                                   .blocks = width_ / lanes(),
                                   .block_step = lanes()};
  const LineKernels<T>& kernels = x_.kernels();
  (geometry.forward ? kernels.rows_to_points : kernels.points_to_rows)(arguments);
}

/// Transforms the lines along X and Y of all lanes.
template <class T>
void HalfcomplexPlan<T>::planes(const Buffers& buffers) const {
  const Extent3& n = problem.extent;
  const index_t row = n.x * width_;
  for (index_t lane = 0; lane < width_; lane += lanes()) {
    T* points = buffers.points + lane;
    const Points<T> along_x{buffers.planes + lane, 2 * width_, width_};
    const Points<T> along_y{buffers.planes + lane, row_elements_, width_};
    const Points<const T> from_x{along_x.data, along_x.step, along_x.im};
    const Points<const T> from_y{along_y.data, along_y.step, along_y.im};
    if (geometry.forward) {
      x_.real(points, width_, along_x, buffers.line, n.y, row, row_elements_);
      y_.complex_lines(from_y, along_y, buffers.line, n.y, n.y, geometry.x_star, 2 * width_, 2 * width_);
    } else {
      y_.complex_lines(from_y.swapped(), along_y.swapped(), buffers.line, n.y, n.y, geometry.x_star, 2 * width_,
                       2 * width_);
      x_.hermitian(from_x, points, width_, buffers.line, n.y, row_elements_, row);
    }
  }
}

/// Converts between planes of lanes and the spectrum.
template <class T>
void HalfcomplexPlan<T>::rows(T* spectrum, const Buffers& buffers) const {
  if (rotated()) {
    rotated_rows(spectrum, buffers);
    return;
  }
  const index_t count = problem.extent.y * geometry.x_star, length = problem.extent.z;
  auto* const planes = reinterpret_cast<std::complex<T>*>(spectrum);
  auto* const along_z = reinterpret_cast<std::complex<T>*>(buffers.rows);
  if (geometry.forward) {
    rotated_rows(buffers.rows, buffers);
    transpose(along_z, geometry.z_padded, count, length, planes, count);
  } else {
    transpose(planes, count, length, count, along_z, geometry.z_padded);
    rotated_rows(buffers.rows, buffers);
  }
}

/// The same for a spectrum in rotated order.
template <class T>
void HalfcomplexPlan<T>::rotated_rows(T* spectrum, const Buffers& buffers) const {
  const HalfcomplexArguments<T> arguments{.lanes = buffers.planes,
                                          .spectrum = spectrum,
                                          .vectors = vectors_.data(),
                                          .plane_rows = problem.extent.y,
                                          .rows = geometry.x_star,
                                          .n = problem.extent.z,
                                          .width = width_,
                                          .lane_vectors = width_ / lanes(),
                                          .row_vectors = 2 * geometry.z_padded / lanes(),
                                          .lane_step = row_elements_,
                                          .row_step = 2 * geometry.z_padded,
                                          .packed = packed_};
  const LineKernels<T>& kernels = x_.kernels();
  (geometry.forward ? kernels.halfcomplex_to_rows : kernels.rows_to_halfcomplex)(arguments);
}

template <class T>
std::shared_ptr<const Plan::Impl> make_plan(const Problem& problem, const Options& options) {
  if (!HalfcomplexPlan<T>::may_apply(problem, options)) return nullptr;
  auto plan = std::make_shared<HalfcomplexPlan<T>>(problem, options);
  return plan->applies() ? plan : nullptr;
}

}  // namespace

std::shared_ptr<const Plan::Impl> make_halfcomplex_plan(const Problem& problem, const Options& options) {
  if (problem.type == DataType::f32) return make_plan<float>(problem, options);
  return make_plan<double>(problem, options);
}

}  // namespace convolume::fft
