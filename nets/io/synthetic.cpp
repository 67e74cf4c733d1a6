#include "nets/io/synthetic.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "core/checked.hpp"
#include "core/random.hpp"

namespace convolume::nets {
namespace {

// Purpose of a stream of random numbers; it is part of the key.
enum class Stream : std::uint32_t { cell = 0x53594e31, body = 0x53594e32, noise = 0x53594e33, slice = 0x53594e34 };

RandomKey key_of(const SyntheticOptions& options, Stream stream) {
  return {.seed = options.seed, .a = static_cast<std::uint32_t>(stream), .b = 0};
}

constexpr double unit(std::uint32_t word) { return static_cast<double>(word) * 0x1p-32; }

/// A point in units of voxels along x and y; z is multiplied by the anisotropy.
struct Point {
  double z = 0, y = 0, x = 0;
};

double squared_distance(const Point& a, const Point& b) {
  const double dz = a.z - b.z, dy = a.y - b.y, dx = a.x - b.x;
  return dz * dz + dy * dy + dx * dx;
}

constexpr int bodies_per_cell = 3;
constexpr double membrane_brightness = 0.18, body_brightness = 0.32;

struct Body {
  Point centre;
  double squared_radius = 0;  ///< 0: there is no body
  double brightness = 0;
};

struct Cell {
  Point centre;
  double brightness = 0;
  std::array<Body, bodies_per_cell> bodies{};
};

/// Cells of the volume. A grid has one cell per box; the box edge is the cell diameter, and the grid extends one box
/// beyond the volume on every side.
class Tissue {
 public:
  explicit Tissue(const SyntheticOptions& options) : options_(options), edge_(options.cell_diameter) {
    const auto boxes = [&](index_t voxels, double spacing) {
      return static_cast<index_t>(static_cast<double>(voxels) * spacing / edge_) + 3;
    };
    grid_ = {boxes(options.extent.z, options.anisotropy), boxes(options.extent.y, 1), boxes(options.extent.x, 1)};
    cells_.resize(static_cast<std::size_t>(grid_.volume()));
    std::size_t i = 0;
    for (index_t z = 0; z < grid_.z; ++z) {
      for (index_t y = 0; y < grid_.y; ++y) {
        for (index_t x = 0; x < grid_.x; ++x, ++i) cells_[i] = make_cell(z, y, x, i);
      }
    }
  }

  /// Computes brightness and label of the voxels of a row.
  void render(index_t z, index_t y, float* image, float* label) const {
    const index_t box_z = box(static_cast<double>(z) * options_.anisotropy), box_y = box(static_cast<double>(y));
    std::array<const Cell*, 27> near{};
    index_t known_box = -1;
    for (index_t x = 0; x < options_.extent.x; ++x) {
      const Point point{static_cast<double>(z) * options_.anisotropy, static_cast<double>(y), static_cast<double>(x)};
      if (const index_t box_x = box(point.x); box_x != known_box) {
        near = neighbours(box_z, box_y, box_x);
        known_box = box_x;
      }
      const Cell *first = nullptr, *second = nullptr;
      double first_distance = std::numeric_limits<double>::max(), second_distance = first_distance;
      for (const Cell* cell : near) {
        const double distance = squared_distance(cell->centre, point);
        if (distance < first_distance) {
          second = first;
          second_distance = first_distance;
          first = cell;
          first_distance = distance;
        } else if (distance < second_distance) {
          second = cell;
          second_distance = distance;
        }
      }
      // Distance to the wall between the two cells: the projection onto the line that joins their centres.
      const double apart = std::sqrt(squared_distance(first->centre, second->centre));
      const double wall = (second_distance - first_distance) / (2 * apart);
      const double half = options_.membrane_width / 2;
      label[x] = wall < half ? 1.0f : 0.0f;
      // The darkness fades over one voxel around the edge of the label.
      const double cover = std::clamp(half + 0.5 - wall, 0.0, 1.0);
      const double inside = interior(*first, point);
      image[x] = static_cast<float>(inside + (membrane_brightness - inside) * (half > 0 ? cover : 0.0));
    }
  }

 private:
  /// Returns the index of the box along an axis. The first box of the grid lies outside the volume.
  index_t box(double position) const { return static_cast<index_t>(position / edge_) + 1; }

  Cell make_cell(index_t z, index_t y, index_t x, std::size_t i) const {
    const auto place = philox(key_of(options_, Stream::cell), i);
    // A jitter of at most a third of the edge keeps the two nearest centres within the neighbouring boxes. The
    // exceptions are voxels so far from any wall that the error does not matter.
    const auto at = [&](index_t box, std::uint32_t word) {
      return (static_cast<double>(box) - 0.5 + (unit(word) - 0.5) * (2.0 / 3.0)) * edge_;
    };
    Cell cell;
    cell.centre = {at(z, place[0]), at(y, place[1]), at(x, place[2])};
    cell.brightness = 0.6 + 0.25 * unit(place[3]);
    for (int b = 0; b < bodies_per_cell; ++b) {
      const auto counter = 2 * (static_cast<std::uint64_t>(i) * bodies_per_cell + static_cast<std::uint64_t>(b));
      const auto where = philox(key_of(options_, Stream::body), counter);
      const auto what = philox(key_of(options_, Stream::body), counter + 1);
      if (unit(what[0]) < 0.4) continue;
      const auto offset = [&](std::uint32_t word) { return (unit(word) - 0.5) * 0.6 * edge_; };
      const double radius = (0.07 + 0.1 * unit(what[1])) * edge_;
      cell.bodies[static_cast<std::size_t>(b)] = {
          {cell.centre.z + offset(where[0]), cell.centre.y + offset(where[1]), cell.centre.x + offset(where[2])},
          radius * radius,
          body_brightness + 0.15 * unit(what[2])};
    }
    return cell;
  }

  std::array<const Cell*, 27> neighbours(index_t z, index_t y, index_t x) const {
    std::array<const Cell*, 27> result{};
    std::size_t i = 0;
    for (index_t dz = -1; dz <= 1; ++dz) {
      for (index_t dy = -1; dy <= 1; ++dy) {
        for (index_t dx = -1; dx <= 1; ++dx) {
          result[i++] = &cells_[static_cast<std::size_t>(((z + dz) * grid_.y + y + dy) * grid_.x + x + dx)];
        }
      }
    }
    return result;
  }

  static double interior(const Cell& cell, const Point& point) {
    for (const auto& body : cell.bodies) {
      if (squared_distance(body.centre, point) < body.squared_radius) return body.brightness;
    }
    return cell.brightness;
  }

  SyntheticOptions options_;
  double edge_;
  Extent3 grid_;
  std::vector<Cell> cells_;
};

/// Gaussian blur as repeated three-tap means: their variances add up, and no exponential is needed. Edge voxels are
/// repeated.
class Blur {
 public:
  Blur(double sigma, index_t height, index_t width)
      : passes_(static_cast<int>(2 * sigma * sigma) + (sigma > 0 ? 1 : 0)),
        side_(passes_ > 0 ? static_cast<float>(sigma * sigma / (2 * passes_)) : 0.0f),
        centre_(1 - 2 * side_),
        height_(height),
        width_(width),
        rows_(static_cast<std::size_t>(2 * width)) {}

  void apply(float* slice) {
    float* const above = rows_.data();
    float* const own = above + width_;
    for (int pass = 0; pass < passes_; ++pass) {
      for (index_t y = 0; y < height_; ++y) {
        float* const row = slice + y * width_;
        float left = row[0];
        for (index_t x = 0; x < width_; ++x) {
          const float here = row[x], right = x + 1 < width_ ? row[x + 1] : here;
          row[x] = centre_ * here + side_ * (left + right);
          left = here;
        }
      }
      std::copy(slice, slice + width_, above);
      for (index_t y = 0; y < height_; ++y) {
        float* const row = slice + y * width_;
        const float* const below = y + 1 < height_ ? row + width_ : row;
        std::copy(row, row + width_, own);
        for (index_t x = 0; x < width_; ++x) row[x] = centre_ * own[x] + side_ * (above[x] + below[x]);
        std::copy(own, own + width_, above);
      }
    }
  }

 private:
  int passes_;
  float side_, centre_;
  index_t height_, width_;
  std::vector<float> rows_;
};

/// Returns a nearly normal number with mean 0 and variance 1: the sum of eight uniform 16-bit numbers, scaled. Unlike
/// Box-Muller it needs no function whose last bit may differ between C libraries.
double nearly_normal(const RandomKey& key, std::uint64_t counter) {
  constexpr double sqrt_of_3_2 = 1.224744871391589049;
  std::uint32_t sum = 0;
  for (const auto word : philox(key, counter)) sum += (word & 0xffffu) + (word >> 16);
  return (static_cast<double>(sum) * 0x1p-16 - (4 - 4 * 0x1p-16)) * sqrt_of_3_2;
}

void require(const SyntheticOptions& options) {
  const auto need = [](bool good, const char* name, double value, const char* range) {
    if (!good) throw InvalidArgument(fmt::format("synthetic volume: {} is {}; give {}", name, value, range));
  };
  const Extent3& extent = options.extent;
  if (extent.z < 1 || extent.y < 1 || extent.x < 1) {
    throw InvalidArgument(
        fmt::format("synthetic volume: the extent is {}; every axis needs a voxel", to_string(extent)));
  }
  need(options.cell_diameter >= 2 && options.cell_diameter <= 1e6, "cell_diameter", options.cell_diameter, "2 to 1e6");
  need(options.anisotropy >= 0.01 && options.anisotropy <= 1000, "anisotropy", options.anisotropy, "0.01 to 1000");
  need(options.membrane_width >= 0 && options.membrane_width <= 1e6, "membrane_width", options.membrane_width,
       "0 to 1e6");
  need(options.noise >= 0 && options.noise <= 1000, "noise", options.noise, "0 to 1000");
  need(options.blur >= 0 && options.blur <= 8, "blur", options.blur, "0 to 8");
}

}  // namespace

SyntheticVolume make_synthetic_volume(const SyntheticOptions& options, std::pmr::memory_resource* memory) {
  require(options);
  const Extent3 extent = options.extent;
  const Shape5 shape{.n = 1, .c = 1, .extent = extent};
  SyntheticVolume volume{Tensor<float>(shape, memory), Tensor<float>(shape, memory)};
  const Tissue tissue(options);
  Blur blur(options.blur, extent.y, extent.x);
  const index_t slice_voxels = extent.y * extent.x;
  const auto noise_key = key_of(options, Stream::noise), slice_key = key_of(options, Stream::slice);
  for (index_t z = 0; z < extent.z; ++z) {
    float* const slice = volume.image.data() + z * slice_voxels;
    float* const label = volume.label.data() + z * slice_voxels;
    for (index_t y = 0; y < extent.y; ++y) tissue.render(z, y, slice + y * extent.x, label + y * extent.x);
    blur.apply(slice);
    const auto words = philox(slice_key, static_cast<std::uint64_t>(z));
    const double gain = 0.92 + 0.16 * unit(words[0]), shift = 0.08 * (unit(words[1]) - 0.5);
    for (index_t i = 0; i < slice_voxels; ++i) {
      const auto counter = static_cast<std::uint64_t>(z * slice_voxels + i);
      const double value = static_cast<double>(slice[i]) + options.noise * nearly_normal(noise_key, counter);
      slice[i] = static_cast<float>(value * gain + shift);
    }
  }
  return volume;
}

}  // namespace convolume::nets
