#include "nets/io/volume_info.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "nets/io/volume_formats.hpp"

namespace convolume::nets::io {
namespace {

/// Returns the affine map of a qform: a rotation as a unit quaternion, distances, and the sign of k.
std::array<double, 12> qform_of(const Geometry& g) {
  const auto [b, c, d] = g.quatern;
  const double rest = 1 - (b * b + c * c + d * d);
  const double a = rest > 0 ? std::sqrt(rest) : 0;
  const double x = g.pixdim[1], y = g.pixdim[2], z = g.pixdim[3] * (g.pixdim[0] < 0 ? -1 : 1);
  return {(a * a + b * b - c * c - d * d) * x,
          2 * (b * c - a * d) * y,
          2 * (b * d + a * c) * z,
          g.offset[0],
          2 * (b * c + a * d) * x,
          (a * a + c * c - b * b - d * d) * y,
          2 * (c * d - a * b) * z,
          g.offset[1],
          2 * (b * d - a * c) * x,
          2 * (c * d + a * b) * y,
          (a * a + d * d - b * b - c * c) * z,
          g.offset[2]};
}

/// A unit of length: another name for it, the symbol that a Spacing has, and its length.
struct LengthUnit {
  std::string_view name, symbol;
  double micrometres;
};

// The names are those of OME-Zarr, and what ImageJ calls the same units. ImageJ writes the Greek letter as an escape
// sequence, and Unicode has two characters for it.
constexpr LengthUnit length_units[] = {{"yoctometer", "ym", 1e-18},
                                       {"zeptometer", "zm", 1e-15},
                                       {"attometer", "am", 1e-12},
                                       {"femtometer", "fm", 1e-9},
                                       {"picometer", "pm", 1e-6},
                                       {"angstrom", "A", 1e-4},
                                       {"\u00c5", "A", 1e-4},
                                       {"nanometer", "nm", 1e-3},
                                       {"micrometer", "um", 1},
                                       {"micron", "um", 1},
                                       {"microns", "um", 1},
                                       {"\u00b5m", "um", 1},
                                       {"\u03bcm", "um", 1},
                                       {"\\u00B5m", "um", 1},
                                       {"millimeter", "mm", 1e3},
                                       {"centimeter", "cm", 1e4},
                                       {"decimeter", "dm", 1e5},
                                       {"meter", "m", 1e6},
                                       {"dekameter", "dam", 1e7},
                                       {"hectometer", "hm", 1e8},
                                       {"kilometer", "km", 1e9},
                                       {"megameter", "Mm", 1e12},
                                       {"gigameter", "Gm", 1e15},
                                       {"terameter", "Tm", 1e18},
                                       {"petameter", "Pm", 1e21},
                                       {"exameter", "Em", 1e24},
                                       {"zettameter", "Zm", 1e27},
                                       {"yottameter", "Ym", 1e30},
                                       {"in", "inch", 25400},
                                       {"inches", "inch", 25400},
                                       {"ft", "foot", 304800},
                                       {"feet", "foot", 304800},
                                       {"yd", "yard", 914400},
                                       {"mi", "mile", 1609344e3},
                                       {"parsec", "pc", 3.0856775814913673e22}};

/// Returns the unit of this name or symbol, or nullptr.
const LengthUnit* length_unit(std::string_view text) {
  const auto* const found = std::find_if(std::begin(length_units), std::end(length_units), [&](const LengthUnit& unit) {
    return unit.name == text || unit.symbol == text;
  });
  return found == std::end(length_units) ? nullptr : found;
}

/// Returns the length of the vector from the origin of space along a column of the map.
double step(const std::array<double, 12>& m, std::size_t column) {
  return std::hypot(m[column], m[4 + column], m[8 + column]);
}

}  // namespace

std::optional<double> micrometres_per(std::string_view unit) {
  const LengthUnit* const found = length_unit(unit);
  return found == nullptr ? std::nullopt : std::optional(found->micrometres);
}

std::string unit_symbol(std::string_view unit) {
  const LengthUnit* const found = length_unit(unit);
  return std::string(found == nullptr ? unit : found->symbol);
}

std::optional<std::array<double, 3>> spacing_in_micrometres(const Spacing& spacing) {
  const std::optional<double> micrometres = micrometres_per(spacing.unit);
  if (!micrometres) return std::nullopt;
  std::array<double, 3> zyx = spacing.zyx;
  for (double& distance : zyx) distance *= *micrometres;
  return zyx;
}

std::array<double, 12> Geometry::affine() const {
  if (sform_code > 0) return srow;
  if (qform_code > 0) return qform_of(*this);
  return {pixdim[1], 0, 0, 0, 0, pixdim[2], 0, 0, 0, 0, pixdim[3], 0};
}

std::array<double, 3> Geometry::steps() const {
  const auto m = affine();
  return {step(m, 2), step(m, 1), step(m, 0)};
}

double distance_in_voxels(const Geometry& a, const Geometry& b, const Extent3& extent) {
  const auto m = a.affine(), n = b.affine();
  const double voxel = std::max({1e-12, std::min({step(m, 0), step(m, 1), step(m, 2)})});
  double most = 0;
  for (int corner = 0; corner < 8; ++corner) {
    const double i = corner & 1 ? static_cast<double>(extent.x - 1) : 0;
    const double j = corner & 2 ? static_cast<double>(extent.y - 1) : 0;
    const double k = corner & 4 ? static_cast<double>(extent.z - 1) : 0;
    std::array<double, 3> away{};
    for (std::size_t row = 0; row < 3; ++row) {
      const std::size_t at = 4 * row;
      away[row] =
          (m[at] - n[at]) * i + (m[at + 1] - n[at + 1]) * j + (m[at + 2] - n[at + 2]) * k + m[at + 3] - n[at + 3];
    }
    most = std::max(most, std::hypot(away[0], away[1], away[2]));
  }
  return most / voxel;
}

std::string scaling_text(const std::optional<ValueScale>& scale, double voxel) {
  if (!scale) return "";
  const double stored = (voxel - scale->intercept) / scale->slope;
  return fmt::format("stored as {}, scaled by {:.4g}{} in its header: {:.7g} is {:.7g}", name_of(scale->stored),
                     scale->slope, scale->intercept == 0 ? "" : fmt::format(" and shifted by {:.4g}", scale->intercept),
                     is_floating(scale->stored) ? stored : std::round(stored), voxel);
}

std::string whole_numbers_command(const std::string& file, const ValueScale& scale) {
  return fmt::format("convolume convert {} OUT --type {}", file, name_of(scale.stored));
}

void tell_notes(const std::string& name, const VolumeInfo& info, const std::function<void(const std::string&)>& tell) {
  for (const std::string& note : info.notes) {
    if (tell) tell(name + ": " + note);
  }
}

VolumePath split_volume_path(std::string_view text) {
  for (std::size_t colon = text.find(':'); colon != text.npos; colon = text.find(':', colon + 1)) {
    const std::filesystem::path file(text.substr(0, colon));
    if (detail::has_data_sets(file)) return {file, std::string(text.substr(colon + 1))};
  }
  return {std::filesystem::path(text), std::string()};
}

}  // namespace convolume::nets::io
