#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/checked.hpp"
#include "fft/plan_impl.hpp"

namespace convolume::fft {
namespace {

constexpr std::size_t alignment_bytes = 64;

void require(bool condition, const char* field, index_t value, const char* remedy) {
  if (!condition) throw InvalidArgument(fmt::format("fft problem: {} is {}; {}", field, value, remedy));
}

void validate(const Problem& p) {
  require(p.extent.z >= 1, "extent.z", p.extent.z, "lengths are at least 1");
  require(p.extent.y >= 1, "extent.y", p.extent.y, "lengths are at least 1");
  require(p.extent.x >= 1, "extent.x", p.extent.x, "lengths are at least 1");
  require(p.batch >= 1, "batch", p.batch, "at least 1 volume is needed");
  require(p.space_distance >= 0, "space_distance", p.space_distance, "use 0 (dense) or more");
  require(p.spectrum_distance >= 0, "spectrum_distance", p.spectrum_distance, "use 0 (dense) or more");
  constexpr const char* support[3] = {"support.z", "support.y", "support.x"};
  constexpr const char* space[3] = {"space_stride.z", "space_stride.y", "space_stride.x"};
  constexpr const char* spectrum[3] = {"spectrum_stride.z", "spectrum_stride.y", "spectrum_stride.x"};
  for (int axis = 0; axis < 3; ++axis) {
    require(p.support[axis] >= 0 && p.support[axis] <= p.extent[axis], support[axis], p.support[axis],
            "use 0 (all) to the extent of the axis");
    require(p.space_stride[axis] >= 0, space[axis], p.space_stride[axis], "use 0 (dense) or more");
    require(p.spectrum_stride[axis] >= 0, spectrum[axis], p.spectrum_stride[axis], "use 0 (dense) or more");
  }
}

/// A stride and the number of points along it.
struct AxisStep {
  index_t stride, count;
  const char* name;
};

/// Returns the number of elements from the first to the last point of a strided grid. Throws if two points could share
/// an address.
index_t span_of(std::array<AxisStep, 4> steps) {
  std::sort(steps.begin(), steps.end(), [](const AxisStep& a, const AxisStep& b) { return a.stride < b.stride; });
  index_t span = 1;
  for (const AxisStep& step : steps) {
    if (step.count == 1) continue;
    require(step.stride >= span, step.name, step.stride, "points would share addresses; use a larger stride");
    span = checked_add(span, checked_mul(step.stride, step.count - 1, "fft strides"), "fft strides");
  }
  return span;
}

bool is_default(const Extent3& stride) { return stride == Extent3{0, 0, 0}; }

}  // namespace

Geometry::Geometry(const Problem& p) {
  validate(p);
  real = p.kind == Kind::r2c || p.kind == Kind::c2r;
  forward = p.kind == Kind::r2c || p.kind == Kind::c2c_forward;
  complex_bytes = 2 * size_of(p.type);
  space_element_bytes = real ? size_of(p.type) : complex_bytes;
  const Extent3& n = p.extent;
  x_star = real ? n.x / 2 + 1 : n.x;
  for (int axis = 0; axis < 3; ++axis) support[axis] = p.support[axis] == 0 ? n[axis] : p.support[axis];

  const auto or_default = [](index_t stride, index_t value) { return stride != 0 ? stride : value; };
  space_stride.x = or_default(p.space_stride.x, 1);
  const index_t row_points = p.in_place && real ? checked_mul(2, x_star, "fft extent") : n.x;
  space_stride.y = or_default(p.space_stride.y, checked_mul(row_points, space_stride.x, "fft extent"));
  space_stride.z = or_default(p.space_stride.z, checked_mul(space_stride.y, n.y, "fft extent"));
  const index_t volume = checked_mul(space_stride.z, n.z, "fft extent");
  const AxisStep space_steps[3] = {{space_stride.x, n.x, "space_stride.x"},
                                   {space_stride.y, n.y, "space_stride.y"},
                                   {space_stride.z, n.z, "space_stride.z"}};
  // Permuted strides may reach further than the number of planes times their distance.
  const index_t reach =
      p.in_place ? volume : std::max(volume, span_of({{space_steps[0], space_steps[1], space_steps[2], {0, 1, ""}}}));
  space_distance = or_default(p.space_distance, reach);

  const auto unit = static_cast<index_t>(alignment_bytes / complex_bytes);
  // A single plane has no lines along Z that need alignment.
  z_padded = n.z == 1 ? 1 : round_up(n.z, unit, "fft extent");
  padding = false;
  if (p.in_place) {
    require(p.order == Order::natural, "in_place", 1, "rotated order works out of place");
    require(is_default(p.spectrum_stride), "spectrum_stride.x", p.spectrum_stride.x,
            "in place it follows from space_stride");
    const index_t points = real ? 2 : 1;
    require(!real || space_stride.x == 1, "space_stride.x", space_stride.x, "in place, real rows must be contiguous");
    require(space_stride.y % points == 0, "space_stride.y", space_stride.y,
            "in place, strides of real rows must be even");
    require(space_stride.z % points == 0, "space_stride.z", space_stride.z,
            "in place, strides of real planes must be even");
    require(p.batch == 1 || space_distance % points == 0, "space_distance", space_distance,
            "in place, it must be even");
    spectrum_stride = {space_stride.z / points, space_stride.y / points, space_stride.x};
    spectrum_elements = volume / points;
    require(p.spectrum_distance == 0 || p.spectrum_distance == space_distance / points, "spectrum_distance",
            p.spectrum_distance, "in place it follows from space_distance");
    spectrum_distance = space_distance / points;
  } else {
    if (p.order == Order::rotated) {
      spectrum_stride.z = or_default(p.spectrum_stride.z, 1);
      spectrum_stride.x = or_default(p.spectrum_stride.x, checked_mul(z_padded, spectrum_stride.z, "fft extent"));
      spectrum_stride.y = or_default(p.spectrum_stride.y, checked_mul(spectrum_stride.x, x_star, "fft extent"));
      spectrum_elements = checked_mul(spectrum_stride.y, n.y, "fft extent");
      padding = is_default(p.spectrum_stride) && z_padded != n.z;
    } else {
      spectrum_stride.x = or_default(p.spectrum_stride.x, 1);
      spectrum_stride.y = or_default(p.spectrum_stride.y, checked_mul(spectrum_stride.x, x_star, "fft extent"));
      spectrum_stride.z = or_default(p.spectrum_stride.z, checked_mul(spectrum_stride.y, n.y, "fft extent"));
      spectrum_elements = checked_mul(spectrum_stride.z, n.z, "fft extent");
    }
    if (!is_default(p.spectrum_stride)) {
      spectrum_elements = checked_mul(spectrum_stride.z, n.z - 1, "fft extent");
      spectrum_elements = checked_add(spectrum_elements, checked_mul(spectrum_stride.y, n.y - 1, "fft extent"));
      spectrum_elements = checked_add(spectrum_elements, checked_mul(spectrum_stride.x, x_star - 1, "fft extent"));
      spectrum_elements = checked_add(spectrum_elements, 1, "fft extent");
    }
    spectrum_distance = or_default(p.spectrum_distance, spectrum_elements);
  }
  const index_t space_span =
      span_of({{space_steps[0], space_steps[1], space_steps[2], {space_distance, p.batch, "space_distance"}}});
  index_t spectrum_span = span_of({{{spectrum_stride.x, x_star, "spectrum_stride.x"},
                                    {spectrum_stride.y, n.y, "spectrum_stride.y"},
                                    {spectrum_stride.z, n.z, "spectrum_stride.z"},
                                    {spectrum_distance, p.batch, "spectrum_distance"}}});
  if (padding) {
    require(p.batch == 1 || spectrum_distance >= spectrum_elements, "spectrum_distance", spectrum_distance,
            "spectra of a batch, padding included, must not overlap");
    spectrum_span = checked_add(checked_mul(spectrum_distance, p.batch - 1, "fft spectrum buffer"), spectrum_elements,
                                "fft spectrum buffer");
  }
  const auto bytes = [](index_t elements, std::size_t each, const char* what) {
    return static_cast<std::size_t>(checked_mul(elements, static_cast<index_t>(each), what));
  };
  space_bytes = bytes(space_span, space_element_bytes, "fft space buffer");
  spectrum_bytes = bytes(spectrum_span, complex_bytes, "fft spectrum buffer");
  if (p.in_place) space_bytes = spectrum_bytes = std::max(space_bytes, spectrum_bytes);
  // A stride of a single point and a distance of a single volume are never used. They are limited here, so that no sum
  // of offsets can overflow, whatever value the problem gives.
  for (int axis = 0; axis < 3; ++axis) {
    space_stride[axis] = std::min(space_stride[axis], space_span);
    spectrum_stride[axis] = std::min(spectrum_stride[axis], spectrum_span);
  }
  space_distance = std::min(space_distance, space_span);
  spectrum_distance = std::min(spectrum_distance, spectrum_span);
  spectrum_elements = std::min(spectrum_elements, spectrum_span);
}

Plan Plan::make(const Problem& problem, const Options& options) {
  if (options.backend != Backend::measured) return Plan(cached_plan(problem, options));
  Options measured = options;
  measured.backend = measured_backend(problem, options);
  return Plan(cached_plan(problem, measured));
}

namespace {

struct Range {
  const char* name;
  const void* begin;
  std::size_t bytes;
};

void check_buffer(const Range& range, std::size_t alignment) {
  if (range.bytes == 0) return;
  if (range.begin == nullptr) throw InvalidArgument(fmt::format("fft execute: {} is null", range.name));
  if (reinterpret_cast<std::uintptr_t>(range.begin) % alignment != 0) {
    throw InvalidArgument(
        fmt::format("fft execute: {} is not aligned to {} bytes{}", range.name, alignment,
                    alignment == alignment_bytes ? "; align it, or set Problem::unaligned for in and out" : ""));
  }
}

void check_apart(const Range& a, const Range& b) {
  const auto* a_begin = static_cast<const std::byte*>(a.begin);
  const auto* b_begin = static_cast<const std::byte*>(b.begin);
  if (a.bytes != 0 && b.bytes != 0 && a_begin < b_begin + b.bytes && b_begin < a_begin + a.bytes) {
    throw InvalidArgument(fmt::format("fft execute: {} and {} overlap; use separate buffers", a.name, b.name));
  }
}

}  // namespace

namespace {

void check_buffers(const Plan::Impl& plan, const void* in, const void* out, const void* scratch,
                   std::size_t scratch_bytes) {
  const Geometry& g = plan.geometry;
  const Range input{"in", in, g.forward ? g.space_bytes : g.spectrum_bytes};
  const Range output{"out", out, g.forward ? g.spectrum_bytes : g.space_bytes};
  const Range temporary{"scratch", scratch, scratch_bytes};
  const auto alignment = [&](bool space) {
    return !plan.problem.unaligned ? alignment_bytes : space && g.real ? g.space_element_bytes : g.complex_bytes / 2;
  };
  check_buffer(input, alignment(g.forward));
  check_buffer(output, alignment(!g.forward));
  check_buffer(temporary, alignment_bytes);
  if (plan.problem.in_place) {
    if (in != out)
      throw InvalidArgument("fft execute: the plan is in place, but in and out differ; pass the same pointer");
  } else {
    check_apart(input, output);
  }
  check_apart(input, temporary);
  check_apart(output, temporary);
}

}  // namespace

void Plan::execute(const void* in, void* out, void* scratch) const {
  check_buffers(*impl_, in, out, scratch, scratch_bytes());
  void* worker = static_cast<std::byte*>(scratch) + impl_->shared_bytes;
  for (int pass = 0; pass < passes(); ++pass) impl_->run(pass, 0, pass_items(pass), in, out, scratch, worker);
}

void Plan::execute(const void* in, void* out, void* scratch, int workers, const ParallelFor& parallel_for) const {
  if (workers < 1) throw InvalidArgument(fmt::format("fft execute: {} workers; at least 1 is needed", workers));
  if (!parallel_for) throw InvalidArgument("fft execute: parallel_for is empty; give a function, or leave it out");
  check_buffers(*impl_, in, out, scratch, scratch_bytes(workers));
  std::byte* worker_scratch = static_cast<std::byte*>(scratch) + impl_->shared_bytes;
  for (int pass = 0; pass < passes(); ++pass) {
    const auto range = [&](index_t begin, index_t end, int worker) {
      if (worker < 0 || worker >= workers) {
        throw InvalidArgument(
            fmt::format("fft execute: worker {} is not below the number of workers, {}; scratch has no room for it",
                        worker, workers));
      }
      run(pass, begin, end, in, out, scratch, worker_scratch + static_cast<std::size_t>(worker) * impl_->worker_bytes);
    };
    parallel_for(pass_items(pass), std::ref(range));
  }
}

void Plan::run(int pass, index_t begin, index_t end, const void* in, void* out, void* shared, void* worker) const {
  if (pass < 0 || pass >= passes()) {
    throw InvalidArgument(
        fmt::format("fft run: pass {} does not exist; the plan has {} passes, counted from 0", pass, passes()));
  }
  if (begin < 0 || end < begin || end > pass_items(pass)) {
    throw InvalidArgument(
        fmt::format("fft run: items {} to {} are not inside the {} items of the pass", begin, end, pass_items(pass)));
  }
  impl_->run(pass, begin, end, in, out, shared, worker);
}

int Plan::passes() const noexcept { return static_cast<int>(impl_->pass_items.size()); }
index_t Plan::pass_items(int pass) const noexcept { return impl_->pass_items[static_cast<std::size_t>(pass)]; }
std::size_t Plan::shared_bytes() const noexcept { return impl_->shared_bytes; }
std::size_t Plan::worker_bytes() const noexcept { return impl_->worker_bytes; }
std::size_t Plan::scratch_bytes(int workers) const noexcept {
  return impl_->shared_bytes + static_cast<std::size_t>(workers) * impl_->worker_bytes;
}
const Problem& Plan::problem() const noexcept { return impl_->problem; }
std::size_t Plan::space_bytes() const noexcept { return impl_->geometry.space_bytes; }
std::size_t Plan::spectrum_bytes() const noexcept { return impl_->geometry.spectrum_bytes; }
Extent3 Plan::spectrum_stride() const noexcept { return impl_->geometry.spectrum_stride; }
index_t Plan::spectrum_elements() const noexcept { return impl_->geometry.spectrum_elements; }
Backend Plan::backend() const noexcept { return impl_->options.backend; }
std::string Plan::describe() const { return impl_->describe(); }

std::string backend_versions() {
  const std::string fftw = fftw_backend_version();
  return fftw.empty() ? fmt::format("native-{}", version()) : fmt::format("native-{}, {}", version(), fftw);
}

double Plan::flops() const noexcept {
  const Extent3& e = impl_->problem.extent;
  const double points = static_cast<double>(e.z) * static_cast<double>(e.y) * static_cast<double>(e.x);
  return (impl_->geometry.real ? 2.5 : 5.0) * points * std::log2(points);
}

}  // namespace convolume::fft
