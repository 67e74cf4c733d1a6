// The FFTW backend. Natural order is one guru plan. Rotated order is Algorithm 2 of Feinberg (2015), built from two
// FFTW plans.
#include <array>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include <fftw3.h>
#include <fmt/format.h>

#include "core/checked.hpp"
#include "core/fork.hpp"
#include "fft/aligned_buffer.hpp"
#include "fft/plan_impl.hpp"

namespace convolume::fft {
namespace {

/// Gives FFTW's functions for both precisions the same names.
template <class T>
struct Fftw;

template <>
struct Fftw<float> {
  using Handle = fftwf_plan;
  using Complex = fftwf_complex;
  static constexpr auto r2c = fftwf_plan_guru64_dft_r2c;
  static constexpr auto c2r = fftwf_plan_guru64_dft_c2r;
  static constexpr auto c2c = fftwf_plan_guru64_dft;
  static constexpr auto execute_r2c = fftwf_execute_dft_r2c;
  static constexpr auto execute_c2r = fftwf_execute_dft_c2r;
  static constexpr auto execute_c2c = fftwf_execute_dft;
  static constexpr auto destroy = fftwf_destroy_plan;
  static constexpr auto print = fftwf_sprint_plan;
  static constexpr auto export_wisdom = fftwf_export_wisdom_to_string;
  static constexpr auto import_wisdom = fftwf_import_wisdom_from_string;
  static constexpr auto forget_wisdom = fftwf_forget_wisdom;
  static const char* version() { return fftwf_version; }
};

template <>
struct Fftw<double> {
  using Handle = fftw_plan;
  using Complex = fftw_complex;
  static constexpr auto r2c = fftw_plan_guru64_dft_r2c;
  static constexpr auto c2r = fftw_plan_guru64_dft_c2r;
  static constexpr auto c2c = fftw_plan_guru64_dft;
  static constexpr auto execute_r2c = fftw_execute_dft_r2c;
  static constexpr auto execute_c2r = fftw_execute_dft_c2r;
  static constexpr auto execute_c2c = fftw_execute_dft;
  static constexpr auto destroy = fftw_destroy_plan;
  static constexpr auto print = fftw_sprint_plan;
  static constexpr auto export_wisdom = fftw_export_wisdom_to_string;
  static constexpr auto import_wisdom = fftw_import_wisdom_from_string;
  static constexpr auto forget_wisdom = fftw_forget_wisdom;
  static const char* version() { return fftw_version; }
};

/// Returns the lock of FFTW's planner, which is one per process and not thread-safe.
std::mutex& planner_mutex() { return fork_lock(ForkLock::fftw_planner); }

/// Hides FFTW's wisdom from the planner for its lifetime. Otherwise an ESTIMATE plan that follows a MEASURE plan would
/// be the measured one, and the rounding of a program would depend on what ran before it. The caller holds the planner
/// lock.
template <class T>
class WisdomSetAside {
 public:
  explicit WisdomSetAside(bool active) : saved_(active ? Fftw<T>::export_wisdom() : nullptr) {
    if (saved_ != nullptr) Fftw<T>::forget_wisdom();
  }
  ~WisdomSetAside() {
    if (saved_ == nullptr) return;
    Fftw<T>::forget_wisdom();
    Fftw<T>::import_wisdom(saved_);
    std::free(saved_);
  }
  WisdomSetAside(const WisdomSetAside&) = delete;
  WisdomSetAside& operator=(const WisdomSetAside&) = delete;

 private:
  char* saved_;
};

enum class Step { r2c, c2r, forward, backward };

/// One FFTW plan. It is executed on arrays other than those it was planned with.
template <class T>
class Piece {
 public:
  using Api = Fftw<T>;
  using Complex = typename Api::Complex;
  using Dims = std::vector<fftw_iodim64>;

  Piece() = default;
  Piece(Step step, const Dims& dims, const Dims& many, void* in, void* out, unsigned flags) : step_(step) {
    const int rank = static_cast<int>(dims.size());
    const int many_rank = static_cast<int>(many.size());
    switch (step) {
      case Step::r2c:
        handle_ =
            Api::r2c(rank, dims.data(), many_rank, many.data(), static_cast<T*>(in), static_cast<Complex*>(out), flags);
        break;
      case Step::c2r:
        handle_ =
            Api::c2r(rank, dims.data(), many_rank, many.data(), static_cast<Complex*>(in), static_cast<T*>(out), flags);
        break;
      default:
        handle_ = Api::c2c(rank, dims.data(), many_rank, many.data(), static_cast<Complex*>(in),
                           static_cast<Complex*>(out), step == Step::forward ? FFTW_FORWARD : FFTW_BACKWARD, flags);
    }
    if (handle_ == nullptr) throw Unsupported("fft: FFTW made no plan for this problem; use Backend::native");
  }
  Piece(Piece&& other) noexcept : step_(other.step_), handle_(std::exchange(other.handle_, nullptr)) {}
  Piece& operator=(Piece&& other) noexcept {
    std::swap(step_, other.step_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Piece() {
    if (handle_ == nullptr) return;
    const std::lock_guard lock(planner_mutex());
    Api::destroy(handle_);
  }

  void execute(void* in, void* out) const {
    switch (step_) {
      case Step::r2c:
        Api::execute_r2c(handle_, static_cast<T*>(in), static_cast<Complex*>(out));
        break;
      case Step::c2r:
        Api::execute_c2r(handle_, static_cast<Complex*>(in), static_cast<T*>(out));
        break;
      default:
        Api::execute_c2c(handle_, static_cast<Complex*>(in), static_cast<Complex*>(out));
    }
  }

  std::string text() const {
    char* raw = Api::print(handle_);
    std::string text(raw);
    std::free(raw);
    return text;
  }

 private:
  Step step_ = Step::forward;
  typename Api::Handle handle_ = nullptr;
};

unsigned rigor_flag(Rigor rigor) {
  switch (rigor) {
    case Rigor::estimate:
      return FFTW_ESTIMATE;
    case Rigor::measure:
      return FFTW_MEASURE;
    case Rigor::patient:
      return FFTW_PATIENT;
  }
  return FFTW_ESTIMATE;
}

fftw_iodim64 dim(index_t n, index_t in, index_t out) { return {n, in, out}; }

/// Swaps input and output strides: a backward plan reads what the forward plan writes.
template <class Dims>
Dims reversed(Dims dims) {
  for (auto& d : dims) std::swap(d.is, d.os);
  return dims;
}

std::size_t rounded(index_t elements, std::size_t each) {
  return (static_cast<std::size_t>(elements) * each + 63) / 64 * 64;
}

/// A plan of one pass. Its items are the volumes of the batch.
template <class T>
class FftwPlan final : public Plan::Impl {
 public:
  FftwPlan(const Problem& p, const Options& o) : Impl(p, o) {
    const Geometry& g = geometry;
    const Extent3& e = p.extent;
    pass_items = {p.batch};
    x_padded_ = round_up(g.x_star, static_cast<index_t>(64 / g.complex_bytes), "fft extent");
    const bool rotated = p.order == Order::rotated;
    // The rotated order skips empty planes by itself. All other zeros must lie in memory, because FFTW transforms whole
    // volumes.
    staged_ = g.support.y < e.y || g.support.x < e.x || (!rotated && g.support.z < e.z);
    inner_stride_ = staged_ ? Extent3{e.y * e.x, e.x, 1} : g.space_stride;
    planes_bytes_ = rotated ? rounded(e.z * plane_elements(), g.complex_bytes) : 0;
    stage_bytes_ = staged_ ? rounded((rotated ? g.support.z : e.z) * e.y * e.x, g.space_element_bytes) : 0;
    // FFTW's multi-dimensional c2r transform destroys its input.
    const bool copies = p.kind == Kind::c2r && !rotated && !p.in_place;
    worker_bytes = planes_bytes_ + stage_bytes_ + (copies ? rounded(g.spectrum_elements, g.complex_bytes) : 0);

    const unsigned flags = rigor_flag(o.rigor) | alignment_flag();
    // The planner may read these buffers. If it measures, it also writes them.
    const AlignedBuffer space(staged_ ? stage_bytes_ : g.space_bytes), spectrum(g.spectrum_bytes);
    const AlignedBuffer scratch(worker_bytes);
    if (o.rigor != Rigor::estimate) {
      // Measuring executes the plan on these buffers. An estimate does not read them.
      space.clear();
      spectrum.clear();
      scratch.clear();
    }
    const std::lock_guard lock(planner_mutex());
    const WisdomSetAside<T> aside(o.rigor == Rigor::estimate);
    if (rotated) {
      plan_rotated(space.get(), spectrum.get(), scratch.get(), flags);
    } else {
      plan_natural(space.get(), p.in_place && !staged_ ? space.get() : spectrum.get(), flags);
    }
  }

  void run(int, index_t begin, index_t end, const void* in, void* out, void*, void* worker) const override {
    // FFTW's interface is not const-correct. Inputs that FFTW would destroy are copied first.
    auto* source = static_cast<std::byte*>(const_cast<void*>(in));
    auto* target = static_cast<std::byte*>(out);
    auto* scratch = static_cast<std::byte*>(worker);
    const Geometry& g = geometry;
    const auto space_step = static_cast<std::size_t>(g.space_distance) * g.space_element_bytes;
    const auto spectrum_step = static_cast<std::size_t>(g.spectrum_distance) * g.complex_bytes;
    std::byte* stage = scratch + planes_bytes_;
    for (index_t b = begin; b < end; ++b) {
      const auto i = static_cast<std::size_t>(b);
      std::byte* space = (g.forward ? source : target) + i * space_step;
      std::byte* spectrum = (g.forward ? target : source) + i * spectrum_step;
      std::byte* dense = staged_ ? stage : space;
      if (g.forward && staged_) copy_box<true>(space, stage);
      if (problem.order == Order::rotated) {
        execute_rotated(dense, spectrum, scratch);
      } else {
        execute_natural(dense, spectrum, stage + stage_bytes_);
      }
      if (!g.forward && staged_) copy_box<false>(space, stage);
    }
  }

  std::string describe() const override {
    return fmt::format("{} {} {} {}: {}{}", Fftw<T>::version(), to_string(problem.extent),
                       problem.order == Order::rotated ? "rotated" : "natural",
                       options.rigor == Rigor::estimate ? "estimate" : "measured", inner_.text(),
                       problem.order == Order::rotated ? outer_.text() : "");
  }

 private:
  using Dims = typename Piece<T>::Dims;

  index_t plane_elements() const { return problem.extent.y * x_padded_; }
  /// Returns FFTW_UNALIGNED if a volume of the caller's buffers may not be aligned to 64 bytes, and 0 otherwise.
  unsigned alignment_flag() const {
    if (problem.unaligned) return FFTW_UNALIGNED;
    if (problem.batch == 1) return 0;
    const auto space = static_cast<std::size_t>(geometry.space_distance) * geometry.space_element_bytes;
    const auto spectrum = static_cast<std::size_t>(geometry.spectrum_distance) * geometry.complex_bytes;
    return space % 64 == 0 && spectrum % 64 == 0 ? 0u : FFTW_UNALIGNED;
  }

  /// Removes axes of length 1, which FFTW does not need. At least one axis stays.
  static Dims without_trivial(Dims dims) {
    Dims kept;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (dims[i].n != 1 || i + 1 == dims.size()) kept.push_back(dims[i]);
    }
    return kept;
  }

  void plan_natural(void* space, void* spectrum, unsigned flags) {
    const Geometry& g = geometry;
    const Extent3 &e = problem.extent, &s = inner_stride_, &f = g.spectrum_stride;
    const Dims dims = without_trivial({dim(e.z, s.z, f.z), dim(e.y, s.y, f.y), dim(e.x, s.x, f.x)});
    if (g.forward) {
      inner_ = Piece<T>(g.real ? Step::r2c : Step::forward, dims, {}, space, spectrum,
                        flags | (problem.in_place && !staged_ ? 0u : FFTW_PRESERVE_INPUT));
    } else {
      inner_ = Piece<T>(g.real ? Step::c2r : Step::backward, reversed(dims), {}, spectrum, space,
                        flags | (problem.in_place || g.real ? 0u : FFTW_PRESERVE_INPUT));
    }
  }

  void plan_rotated(void* space, void* spectrum, void* scratch, unsigned flags) {
    const Geometry& g = geometry;
    const Extent3 &e = problem.extent, &s = inner_stride_, &f = g.spectrum_stride;
    // Lines 4-5 of Algorithm 2 transform planes (Y, X) into (Y, X* padded).
    const Dims plane = without_trivial({dim(e.y, s.y, x_padded_), dim(e.x, s.x, 1)});
    const Dims planes{dim(g.support.z, s.z, plane_elements())};
    // Lines 8-12 transform lines along Z and write them side by side as (Y, X*, Z padded).
    const Dims line{dim(e.z, plane_elements(), f.z)};
    const Dims lines{dim(e.y, x_padded_, f.y), dim(g.x_star, 1, f.x)};
    if (g.forward) {
      inner_ = Piece<T>(g.real ? Step::r2c : Step::forward, plane, planes, space, scratch, flags | FFTW_PRESERVE_INPUT);
      outer_ = Piece<T>(Step::forward, line, lines, scratch, spectrum, flags);
    } else {
      outer_ =
          Piece<T>(Step::backward, reversed(line), reversed(lines), spectrum, scratch, flags | FFTW_PRESERVE_INPUT);
      inner_ = Piece<T>(g.real ? Step::c2r : Step::backward, reversed(plane), reversed(planes), scratch, space, flags);
    }
  }

  void execute_rotated(std::byte* space, std::byte* spectrum, std::byte* planes) const {
    const Geometry& g = geometry;
    const Extent3& e = problem.extent;
    if (!g.forward) {
      outer_.execute(spectrum, planes);
      inner_.execute(planes, space);
      return;
    }
    inner_.execute(space, planes);
    const auto filled = static_cast<std::size_t>(g.support.z * plane_elements()) * g.complex_bytes;
    std::memset(planes + filled, 0, planes_bytes_ - filled);
    outer_.execute(planes, spectrum);
    if (!g.padding) return;
    // No transform writes the padding. Clear it, so that pointwise operations over it meet no NaN.
    const auto line = static_cast<std::size_t>(g.z_padded) * g.complex_bytes;
    const auto used = static_cast<std::size_t>(e.z) * g.complex_bytes;
    for (index_t i = 0; i < e.y * g.x_star; ++i) {
      std::memset(spectrum + static_cast<std::size_t>(i) * line + used, 0, line - used);
    }
  }

  void execute_natural(std::byte* space, std::byte* spectrum, std::byte* copy) const {
    const Geometry& g = geometry;
    if (g.forward) {
      inner_.execute(space, spectrum);
      return;
    }
    if (problem.kind == Kind::c2r && !problem.in_place) {
      std::memcpy(copy, spectrum, static_cast<std::size_t>(g.spectrum_elements) * g.complex_bytes);
      spectrum = copy;
    }
    inner_.execute(spectrum, space);
  }

  /// Copies between the caller's box and the dense stage. Points of the stage outside the box become zero.
  template <bool to_stage>
  void copy_box(std::byte* space, std::byte* stage) const {
    const Geometry& g = geometry;
    const Extent3& e = problem.extent;
    const std::size_t each = g.space_element_bytes;
    if (to_stage) std::memset(stage, 0, stage_bytes_);
    for (index_t z = 0; z < g.support.z; ++z) {
      for (index_t y = 0; y < g.support.y; ++y) {
        std::byte* outer = space + static_cast<std::size_t>(z * g.space_stride.z + y * g.space_stride.y) * each;
        std::byte* inner = stage + static_cast<std::size_t>((z * e.y + y) * e.x) * each;
        for (index_t x = 0; x < g.support.x; ++x) {
          std::byte* point = outer + static_cast<std::size_t>(x * g.space_stride.x) * each;
          if (to_stage) {
            std::memcpy(inner + static_cast<std::size_t>(x) * each, point, each);
          } else {
            std::memcpy(point, inner + static_cast<std::size_t>(x) * each, each);
          }
        }
      }
    }
  }

  index_t x_padded_ = 0;    // padded X: X* rounded up to the alignment, the rows of half-transformed planes in scratch
  bool staged_ = false;     // whether the space side is copied to or from a dense stage
  Extent3 inner_stride_{};  // of the space side, or of the stage
  std::size_t planes_bytes_ = 0, stage_bytes_ = 0;
  Piece<T> inner_, outer_;
};

}  // namespace

std::shared_ptr<const Plan::Impl> make_fftw_plan(const Problem& problem, const Options& options) {
  if (problem.type == DataType::f32) return std::make_shared<FftwPlan<float>>(problem, options);
  return std::make_shared<FftwPlan<double>>(problem, options);
}

std::string fftw_backend_version() { return Fftw<float>::version(); }

}  // namespace convolume::fft
