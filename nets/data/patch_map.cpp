#include "nets/data/patch_map.hpp"

#include <algorithm>
#include <cmath>

namespace convolume::nets {
namespace {

using Matrix = std::array<std::array<double, 3>, 3>;

constexpr double most_sigmas = 3;  // displacements beyond are clipped, so that boxes have a limit

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c{};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      for (std::size_t k = 0; k < 3; ++k) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

/// Returns the rotation in the plane of two axes.
Matrix rotation(double radians, std::size_t a, std::size_t b) {
  Matrix m{};
  for (std::size_t i = 0; i < 3; ++i) m[i][i] = 1;
  m[a][a] = m[b][b] = std::cos(radians);
  m[a][b] = -std::sin(radians);
  m[b][a] = std::sin(radians);
  return m;
}

/// Turns a map of lengths into one of voxels: divides by the scale, and takes the spacing into account.
Matrix in_voxels(Matrix m, double growth, const VoxelLengths& spacing) {
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) m[i][j] *= spacing[j] / spacing[i] / growth;
  }
  return m;
}

double finest(const VoxelLengths& spacing) { return *std::min_element(spacing.begin(), spacing.end()); }

Extent3 controls_for(const Extent3& patch, const Extent3& grid) {
  Extent3 e;
  for (int axis = 0; axis < 3; ++axis) e[axis] = (patch[axis] - 1) / grid[axis] + 4;
  return e;
}

/// Weights of four neighbouring control points of a uniform cubic B-spline at `share` between the middle two.
std::array<float, 4> spline_weights(double share) {
  const double t = share, u = 1 - share;
  return {static_cast<float>(u * u * u / 6), static_cast<float>((3 * t * t * t - 6 * t * t + 4) / 6),
          static_cast<float>((3 * u * u * u - 6 * u * u + 4) / 6), static_cast<float>(t * t * t / 6)};
}

/// Returns the spacing of the voxels that the net gets.
VoxelLengths grid_spacing(VoxelLengths spacing, const std::optional<Resampling>& resampling) {
  for (std::size_t a = 0; resampling && a < 3; ++a) spacing[a] *= resampling->zoom[a];
  return spacing;
}

}  // namespace

PatchMap::PatchMap(const PatchDraw& draw, const AugmentSpec& augment, const Extent3& patch, const VoxelLengths& spacing,
                   const std::optional<Resampling>& resampling, bool cubic)
    : patch_(patch),
      exact_(!draw.interpolates() && !resampling),
      misaligned_(draw.misaligned),
      slips_(draw.slips),
      shift_(draw.shift),
      zoom_(resampling ? resampling->zoom : std::array<double, 3>{1, 1, 1}) {
  const VoxelLengths grid = grid_spacing(spacing, resampling);
  // q = turned(p): axis `from[a]` of the patch runs along axis a of the volume.
  const std::array<std::size_t, 3> from{0, draw.transpose ? 2U : 1U, draw.transpose ? 1U : 2U};
  Matrix turn{};
  std::array<double, 3> centre{}, of_zero{};  // c; and q(0) - c
  for (std::size_t a = 0; a < 3; ++a) {
    const int axis = static_cast<int>(a);
    turn[a][from[a]] = draw.flip[a] ? -1 : 1;
    centre[a] = static_cast<double>(patch[axis] - 1) / 2;
    of_zero[a] = draw.flip[a] ? centre[a] : -centre[a];
  }
  Matrix m{};
  for (std::size_t i = 0; i < 3; ++i) m[i][i] = 1;
  if (!exact_) {
    m = product(rotation(draw.radians[0], 1, 2),
                product(rotation(draw.radians[1], 0, 2), rotation(draw.radians[2], 0, 1)));
    m = in_voxels(m, draw.growth, grid);
    coarse_axis_ = coarse_axis(spacing);
    interpolation_ = cubic ? ops::Interpolation::cubic : ops::Interpolation::linear;
    if (coarse_axis_ == 0) {
      interpolation_ = cubic ? ops::Interpolation::cubic_in_slice : ops::Interpolation::linear_in_slice;
    }
  }
  steps_ = product(m, turn);
  if (draw.elastic) make_controls(draw, augment, grid);
  for (std::size_t a = 0; a < 3; ++a) {
    const int axis = static_cast<int>(a);
    double place = static_cast<double>(draw.origin[axis]) + centre[a];
    for (std::size_t b = 0; b < 3; ++b) place += m[a][b] * of_zero[b];
    if (resampling) place = (place + 0.5) * zoom_[a] - 0.5;
    for (double& step : steps_[a]) step *= zoom_[a];
    double least = place, largest = place;
    for (std::size_t b = 0; b < 3; ++b) {
      const double span = steps_[a][b] * static_cast<double>(patch[static_cast<int>(b)] - 1);
      (span < 0 ? least : largest) += span;
    }
    if (!controls_.empty()) {
      const auto count = static_cast<std::ptrdiff_t>(controls_extent_.volume());
      const auto begin = controls_.begin() + static_cast<std::ptrdiff_t>(a) * count;
      const auto [low, high] = std::minmax_element(begin, begin + count);
      least += static_cast<double>(*low);
      largest += static_cast<double>(*high);
    }
    if (a > 0 && misaligned_ >= 0) {
      least += zoom_[a] * static_cast<double>(std::min<index_t>(0, shift_[a - 1]));
      largest += zoom_[a] * static_cast<double>(std::max<index_t>(0, shift_[a - 1]));
    }
    // A float holds a place within the box to 1e-3 of a voxel, so a margin covers its rounding.
    const double margin = exact_ ? 0 : 0.01;
    // A cubic interpolation reads one voxel more on either side.
    const index_t more = cubic && !exact_ && axis != coarse_axis_ ? 1 : 0;
    box_.begin[axis] = static_cast<index_t>(exact_ ? std::round(least) : std::floor(least - margin)) - more;
    const index_t end = static_cast<index_t>(exact_ ? std::round(largest) : std::ceil(largest + margin)) + more;
    box_.extent[axis] = end - box_.begin[axis] + 1;
    first_[a] = place - static_cast<double>(box_.begin[axis]);
  }
}

Extent3 PatchMap::largest_box(const AugmentSpec& augment, const Extent3& patch, const VoxelLengths& spacing,
                              const std::optional<Resampling>& resampling, bool cubic) {
  std::array<double, 3> length{};  // in voxels of the patch, from the first place to the last
  for (std::size_t a = 0; a < 3; ++a) length[a] = static_cast<double>(patch[static_cast<int>(a)] - 1);
  if (augment.interpolates()) {
    const VoxelLengths grid = grid_spacing(spacing, resampling);
    std::array<double, 3> sine{};
    for (std::size_t a = 0; a < 3; ++a) {
      const double degrees = augment.rotate.probability > 0 ? std::min(augment.rotate.degrees[a], 90.0) : 0;
      sine[a] = std::sin(degrees * 3.14159265358979 / 180);
    }
    // An entry of a product of three rotations is at most this.
    Matrix m{};
    for (std::size_t i = 0; i < 3; ++i) m[i][i] = 1;
    m[1][2] = m[2][1] = std::min(1.0, sine[0] + sine[1] * sine[2]);
    m[0][2] = m[2][0] = std::min(1.0, sine[1] + sine[0] * sine[2]);
    m[0][1] = m[1][0] = std::min(1.0, sine[2] + sine[0] * sine[1]);
    m = in_voxels(m, augment.scale.probability > 0 ? std::min(1.0, augment.scale.range[0]) : 1, grid);
    for (std::size_t a = 0; a < 3; ++a) {
      length[a] = 0;
      for (std::size_t b = 0; b < 3; ++b) length[a] += m[a][b] * static_cast<double>(patch[static_cast<int>(b)] - 1);
      if (augment.elastic.probability > 0)
        length[a] += 2 * most_sigmas * augment.elastic.sigma * finest(grid) / grid[a];
    }
    if (augment.rotate90) length[1] = length[2] = std::max(length[1], length[2]);
  }
  Extent3 extent;
  const bool exact = !augment.interpolates() && !resampling;
  for (std::size_t a = 0; a < 3; ++a) {
    if (a > 0 && augment.misalign.probability > 0) length[a] += static_cast<double>(augment.misalign.pixels);
    const double zoom = resampling ? resampling->zoom[a] : 1;
    const index_t more = exact ? 1 : cubic ? 5 : 3;
    extent[static_cast<int>(a)] = static_cast<index_t>(std::ceil(length[a] * zoom)) + more;
  }
  return extent;
}

void PatchMap::make_controls(const PatchDraw& draw, const AugmentSpec& augment, const VoxelLengths& spacing) {
  grid_ = augment.elastic.grid;
  controls_extent_ = controls_for(patch_, grid_);
  const auto count = static_cast<std::size_t>(controls_extent_.volume());
  controls_.resize(3 * count);
  for (index_t i = 0; i < grid_.x; ++i) {
    weights_x_.push_back(spline_weights(static_cast<double>(i) / static_cast<double>(grid_.x)));
  }
  for (std::size_t i = 0; i < 3 * count; ++i) {
    const double sigmas =
        std::clamp(draw.random.normal(PatchRandom::Purpose::displacement, i), -most_sigmas, most_sigmas);
    const std::size_t axis = i / count;
    controls_[i] = static_cast<float>(sigmas * augment.elastic.sigma * finest(spacing) / spacing[axis] * zoom_[axis]);
  }
}

std::array<index_t, 3> PatchMap::shift_of(index_t z) const {
  const bool shifted = misaligned_ >= 0 && (slips_ ? z == misaligned_ : z >= misaligned_);
  return {0, shifted ? shift_[0] : 0, shifted ? shift_[1] : 0};
}

void PatchMap::places(index_t z, index_t y, index_t x, index_t n, float* to_z, float* to_y, float* to_x) const {
  float* const to[3] = {to_z, to_y, to_x};
  const auto shift = shift_of(z);
  for (std::size_t a = 0; a < 3; ++a) {
    const double begin = first_[a] + steps_[a][0] * static_cast<double>(z) + steps_[a][1] * static_cast<double>(y) +
                         steps_[a][2] * static_cast<double>(x) + zoom_[a] * static_cast<double>(shift[a]);
    const double step = steps_[a][2];
    for (index_t i = 0; i < n; ++i) to[a][i] = static_cast<float>(begin + step * static_cast<double>(i));
  }
  if (!controls_.empty()) add_displacements(z, y, x, n, to);
  if (coarse_axis_ < 0) return;
  for (index_t i = 0; i < n; ++i) to[coarse_axis_][i] = std::floor(to[coarse_axis_][i] + 0.5f);
}

void PatchMap::add_displacements(index_t z, index_t y, index_t x, index_t n, float* const to[3]) const {
  const Extent3& e = controls_extent_;
  const auto at = [&](index_t place, index_t grid) {
    return static_cast<double>(place % grid) / static_cast<double>(grid);
  };
  const auto weights_z = spline_weights(at(z, grid_.z)), weights_y = spline_weights(at(y, grid_.y));
  const index_t first_z = z / grid_.z, first_y = y / grid_.y;
  // The displacements of this row's control points, then those of its voxels.
  constexpr index_t most_columns = 64;
  float columns[most_columns];
  for (std::size_t a = 0; a < 3; ++a) {
    const float* const own = controls_.data() + static_cast<std::ptrdiff_t>(a) * e.volume();
    index_t begin = 0, end = 0;  // control columns in `columns`
    for (index_t i = 0; i < n; ++i) {
      const index_t first = (x + i) / grid_.x;
      if (first + 4 > end || i == 0) {
        begin = first;
        end = std::min(e.x, begin + most_columns);
        for (index_t c = begin; c < end; ++c) {
          float sum = 0;
          for (index_t k = 0; k < 4; ++k) {
            for (index_t j = 0; j < 4; ++j) {
              sum += weights_z[static_cast<std::size_t>(k)] * weights_y[static_cast<std::size_t>(j)] *
                     own[((first_z + k) * e.y + first_y + j) * e.x + c];
            }
          }
          columns[c - begin] = sum;
        }
      }
      const auto& w = weights_x_[static_cast<std::size_t>((x + i) % grid_.x)];
      const float* const near = columns + (first - begin);
      to[a][i] += w[0] * near[0] + w[1] * near[1] + w[2] * near[2] + w[3] * near[3];
    }
  }
}

std::pair<index_t, index_t> PatchMap::row(index_t z, index_t y, index_t x) const {
  const auto shift = shift_of(z);
  std::array<index_t, 3> place{};
  for (std::size_t a = 0; a < 3; ++a) {
    place[a] = static_cast<index_t>(std::llround(first_[a] + steps_[a][0] * static_cast<double>(z) +
                                                 steps_[a][1] * static_cast<double>(y) +
                                                 steps_[a][2] * static_cast<double>(x))) +
               shift[a];
  }
  const auto step = [&](std::size_t a) { return static_cast<index_t>(steps_[a][2]); };
  const Extent3& e = box_.extent;
  return {(place[0] * e.y + place[1]) * e.x + place[2], (step(0) * e.y + step(1)) * e.x + step(2)};
}

}  // namespace convolume::nets
