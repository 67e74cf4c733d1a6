#include <cmath>

#include <fmt/format.h>

#include "core/checked.hpp"
#include "fft/plan_impl.hpp"

namespace convolume::fft {
namespace {

constexpr index_t alignment_bytes = 64;

void require(bool condition, const char* field, index_t value, const char* remedy) {
  if (!condition) throw InvalidArgument(fmt::format("fft problem: {} is {}; {}", field, value, remedy));
}

void validate(const Problem& p, index_t row_points) {
  require(p.extent.z >= 1, "extent.z", p.extent.z, "lengths are at least 1");
  require(p.extent.y >= 1, "extent.y", p.extent.y, "lengths are at least 1");
  require(p.extent.x >= 1, "extent.x", p.extent.x, "lengths are at least 1");
  require(p.batch >= 1, "batch", p.batch, "at least 1 volume is needed");
  require(p.planes >= 0 && p.planes <= p.extent.z, "planes", p.planes, "use 0 (all) to extent.z");
  require(p.row_stride == 0 || p.row_stride >= row_points, "row_stride", p.row_stride, "a row must hold its points");
  require(p.plane_stride >= 0, "plane_stride", p.plane_stride, "use 0 (dense) or more");
  require(p.space_distance >= 0, "space_distance", p.space_distance, "use 0 (dense) or more");
  require(p.spectrum_distance >= 0, "spectrum_distance", p.spectrum_distance, "use 0 (dense) or more");
}

}  // namespace

Geometry::Geometry(const Problem& p) {
  real = p.kind == Kind::r2c || p.kind == Kind::c2r;
  forward = p.kind == Kind::r2c || p.kind == Kind::c2c_forward;
  complex_bytes = 2 * size_of(p.type);
  space_element_bytes = real ? size_of(p.type) : complex_bytes;
  x_star = real ? p.extent.x / 2 + 1 : p.extent.x;
  const index_t row_points = p.in_place && real ? 2 * x_star : p.extent.x;
  validate(p, row_points);
  planes = p.planes == 0 ? p.extent.z : p.planes;

  row_stride = p.row_stride != 0 ? p.row_stride : row_points;
  plane_stride = p.plane_stride != 0 ? p.plane_stride : checked_mul(row_stride, p.extent.y, "fft extent");
  const index_t volume = checked_mul(plane_stride, p.extent.z, "fft extent");
  space_distance = p.space_distance != 0 ? p.space_distance : volume;
  require(plane_stride >= checked_mul(row_stride, p.extent.y - 1) + p.extent.x, "plane_stride", plane_stride,
          "a plane must hold its rows");
  require(
      p.batch == 1 || space_distance >= plane_stride * (p.extent.z - 1) + row_stride * (p.extent.y - 1) + p.extent.x,
      "space_distance", space_distance, "volumes of a batch must not overlap");

  const auto unit = static_cast<index_t>(alignment_bytes / static_cast<index_t>(complex_bytes));
  x_padded = round_up(x_star, unit, "fft extent");
  z_padded = round_up(p.extent.z, unit, "fft extent");
  if (p.order == Order::rotated) {
    require(!p.in_place, "in_place", 1, "rotated order works out of place");
    spectrum_stride = {1, checked_mul(x_star, z_padded, "fft extent"), z_padded};
    spectrum_elements = checked_mul(spectrum_stride.y, p.extent.y, "fft extent");
  } else if (p.in_place) {
    const index_t points = real ? 2 : 1;
    require(row_stride % points == 0 && plane_stride % points == 0 && space_distance % points == 0, "row_stride",
            row_stride, "in place, strides of real rows must be even");
    spectrum_stride = {plane_stride / points, row_stride / points, 1};
    spectrum_elements = checked_mul(spectrum_stride.z, p.extent.z, "fft extent");
    require(p.spectrum_distance == 0 || p.spectrum_distance == space_distance / points, "spectrum_distance",
            p.spectrum_distance, "in place it follows from space_distance");
  } else {
    spectrum_stride = {checked_mul(x_star, p.extent.y, "fft extent"), x_star, 1};
    spectrum_elements = checked_mul(spectrum_stride.z, p.extent.z, "fft extent");
  }
  spectrum_distance = p.spectrum_distance != 0 ? p.spectrum_distance
                      : p.in_place             ? space_distance / (real ? 2 : 1)
                                               : spectrum_elements;
  require(p.batch == 1 || p.in_place || spectrum_distance >= spectrum_elements, "spectrum_distance", spectrum_distance,
          "spectra of a batch must not overlap");
  const auto bytes = [&](index_t distance, index_t last, std::size_t element, const char* what) {
    const index_t count = checked_add(checked_mul(distance, p.batch - 1, what), last, what);
    return static_cast<std::size_t>(checked_mul(count, static_cast<index_t>(element), what));
  };
  space_bytes = bytes(space_distance, volume, space_element_bytes, "fft space buffer");
  spectrum_bytes = bytes(spectrum_distance, spectrum_elements, complex_bytes, "fft spectrum buffer");
}

Plan Plan::make(const Problem& problem, const Options& options) { return Plan(cached_plan(problem, options)); }

namespace {

struct Range {
  const char* name;
  const void* begin;
  std::size_t bytes;
};

void check_buffer(const Range& range) {
  if (range.bytes == 0) return;
  if (range.begin == nullptr) throw InvalidArgument(fmt::format("fft execute: {} is null", range.name));
  if (reinterpret_cast<std::uintptr_t>(range.begin) % static_cast<std::uintptr_t>(alignment_bytes) != 0) {
    throw InvalidArgument(fmt::format("fft execute: {} is not aligned to 64 bytes", range.name));
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

void Plan::execute(const void* in, void* out, void* scratch) const {
  const Geometry& g = impl_->geometry;
  const Range input{"in", in, g.forward ? g.space_bytes : g.spectrum_bytes};
  const Range output{"out", out, g.forward ? g.spectrum_bytes : g.space_bytes};
  const Range temporary{"scratch", scratch, impl_->scratch_bytes};
  check_buffer(input);
  check_buffer(output);
  check_buffer(temporary);
  if (impl_->problem.in_place) {
    if (in != out) throw InvalidArgument("fft execute: the plan is in place, but in and out differ");
  } else {
    check_apart(input, output);
  }
  check_apart(input, temporary);
  check_apart(output, temporary);
  impl_->execute(in, out, scratch);
}

const Problem& Plan::problem() const noexcept { return impl_->problem; }
std::size_t Plan::space_bytes() const noexcept { return impl_->geometry.space_bytes; }
std::size_t Plan::spectrum_bytes() const noexcept { return impl_->geometry.spectrum_bytes; }
std::size_t Plan::scratch_bytes() const noexcept { return impl_->scratch_bytes; }
Extent3 Plan::spectrum_stride() const noexcept { return impl_->geometry.spectrum_stride; }
index_t Plan::spectrum_elements() const noexcept { return impl_->geometry.spectrum_elements; }
std::string Plan::describe() const { return impl_->describe(); }

double Plan::flops() const noexcept {
  const Extent3& e = impl_->problem.extent;
  const double points = static_cast<double>(e.z) * static_cast<double>(e.y) * static_cast<double>(e.x);
  return (impl_->geometry.real ? 2.5 : 5.0) * points * std::log2(points);
}

}  // namespace convolume::fft
