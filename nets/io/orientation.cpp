#include "nets/io/orientation.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::nets::io {
namespace {

constexpr std::string_view ends[] = {"RL", "AP", "SI"};  // of the axes of space: positive and negative

/// An axis of space, and whether an axis of a volume points to its negative end.
struct Direction {
  int axis = 0;
  bool negative = false;
};

/// Returns the directions of i, j, k: the assignment of axes that agrees most with the map.
std::array<Direction, 3> directions_of(const std::array<double, 12>& m) {
  std::array<int, 3> axes{0, 1, 2}, best = axes;
  double most = -1;
  const auto length = [&](std::size_t column) { return std::hypot(m[column], m[4 + column], m[8 + column]); };
  do {
    double sum = 0;
    for (std::size_t column = 0; column < 3; ++column) {
      sum += std::abs(m[4 * static_cast<std::size_t>(axes[column]) + column]) / length(column);
    }
    if (sum > most + 1e-9) {
      most = sum;
      best = axes;
    }
  } while (std::next_permutation(axes.begin(), axes.end()));
  std::array<Direction, 3> result;
  for (std::size_t column = 0; column < 3; ++column) {
    result[column] = {best[column], m[4 * static_cast<std::size_t>(best[column]) + column] < 0};
  }
  return result;
}

/// Returns whether a map takes different voxels to different places.
bool is_map(const std::array<double, 12>& m) {
  const double determinant =
      m[0] * (m[5] * m[10] - m[6] * m[9]) - m[1] * (m[4] * m[10] - m[6] * m[8]) + m[2] * (m[4] * m[9] - m[5] * m[8]);
  return std::isfinite(determinant) && determinant != 0;
}

/// Returns the geometry of a turned volume of this extent, before it was turned. The map becomes the sform.
Geometry turned_geometry(const Geometry& geometry, const AxisMap& map, const Extent3& extent) {
  const auto m = geometry.affine();
  Geometry result = geometry;
  result.sform_code = std::max(1, geometry.sform_code > 0 ? geometry.sform_code : geometry.qform_code);
  result.qform_code = 0;
  result.quatern = {};
  result.offset = {};
  result.pixdim[0] = 1;
  for (std::size_t row = 0; row < 3; ++row) result.srow[4 * row + 3] = m[4 * row + 3];
  for (std::size_t axis = 0; axis < 3; ++axis) {
    // Columns are i, j, k, and axes are z, y, x.
    const std::size_t to = 2 - axis, from = 2 - static_cast<std::size_t>(map.from[axis]);
    result.pixdim[1 + to] = geometry.pixdim[1 + from];
    for (std::size_t row = 0; row < 3; ++row) {
      const double step = m[4 * row + from];
      result.srow[4 * row + to] = map.mirrored[axis] ? -step : step;
      if (map.mirrored[axis]) result.srow[4 * row + 3] += step * static_cast<double>(extent[map.from[axis]] - 1);
    }
  }
  return result;
}

class TurnedSource final : public VolumeSource {
 public:
  TurnedSource(std::shared_ptr<const VolumeSource> source, const AxisMap& map)
      : VolumeSource(source->path()), source_(std::move(source)), map_(map) {
    info_ = source_->info();
    info_.turned = !info_.turned;  // back again, if it was turned before
    info_.extent = map.turned(source_->info().extent);
    info_.chunk = map.turned(source_->info().chunk);
    info_.planes_of_chunks = info_.planes_of_chunks && map.from[0] == 0;
    if (info_.spacing) info_.spacing->zyx = map.turned(info_.spacing->zyx);
    if (info_.geometry) info_.geometry = turned_geometry(*info_.geometry, map, source_->info().extent);
  }

  std::uint64_t stored_bytes() const override { return source_->stored_bytes(); }

 private:
  void do_read(ChannelRange channels, const VoxelBox& box, std::byte* voxels) const override {
    const VoxelBox own = map_.inverse().turned(box, info_.extent);
    const auto bytes = static_cast<std::size_t>(channels.count * box.extent.volume()) * info_.bytes_per_voxel();
    const auto stored = std::make_unique_for_overwrite<std::byte[]>(bytes);
    source_->read(channels, own, {stored.get(), bytes});
    with_type(info_.type, [&]<class T>(T) {
      turn(reinterpret_cast<const T*>(stored.get()), own.extent, channels.count, box.extent,
           reinterpret_cast<T*>(voxels));
    });
  }

  /// Copies voxels of the file into the turned order. Unaligned targets are written byte by byte.
  template <class T>
  void turn(const T* from, const Extent3& own, index_t channels, const Extent3& e, T* to) const {
    const Extent3 steps{own.y * own.x, own.x, 1};
    Extent3 step{};
    index_t first = 0;
    for (int axis = 0; axis < 3; ++axis) {
      const auto a = static_cast<std::size_t>(axis);
      const index_t length = steps[map_.from[a]];
      step[axis] = map_.mirrored[a] ? -length : length;
      if (map_.mirrored[a]) first += length * (e[axis] - 1);
    }
    for (index_t c = 0; c < channels; ++c, first += own.volume()) {
      for (index_t z = 0; z < e.z; ++z) {
        for (index_t y = 0; y < e.y; ++y, to += e.x) {
          const T* row = from + first + z * step.z + y * step.y;
          for (index_t x = 0; x < e.x; ++x) std::memcpy(to + x, row + x * step.x, sizeof(T));
        }
      }
    }
  }

  std::shared_ptr<const VolumeSource> source_;
  AxisMap map_;
};

}  // namespace

AxisMap AxisMap::inverse() const {
  AxisMap result;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const auto own = static_cast<std::size_t>(from[axis]);
    result.from[own] = static_cast<int>(axis);
    result.mirrored[own] = mirrored[axis];
  }
  return result;
}

Extent3 AxisMap::turned(const Extent3& extent) const { return {extent[from[0]], extent[from[1]], extent[from[2]]}; }

VoxelBox AxisMap::turned(const VoxelBox& box, const Extent3& extent) const {
  VoxelBox result{turned(box.begin), turned(box.extent)};
  const Extent3 all = turned(extent);
  for (int axis = 0; axis < 3; ++axis) {
    if (mirrored[static_cast<std::size_t>(axis)]) result.begin[axis] = all[axis] - result.end()[axis];
  }
  return result;
}

std::array<double, 3> AxisMap::turned(const std::array<double, 3>& zyx) const {
  const auto at = [&](std::size_t axis) { return zyx[static_cast<std::size_t>(from[axis])]; };
  return {at(0), at(1), at(2)};
}

void check_orientation(const std::string& text) {
  bool good = text.size() == 3;
  for (const std::string_view end : ends) {
    good = good && std::count_if(text.begin(), text.end(), [&](char c) { return end.find(c) != end.npos; }) == 1;
  }
  if (good) return;
  throw InvalidArgument(
      fmt::format("'{}' is no orientation; give three letters for x, y and z, one of R and L, one of A and P, one of S "
                  "and I, for example RAS",
                  text));
}

std::string orientation_of(const Geometry& geometry) {
  if (geometry.sform_code <= 0 && geometry.qform_code <= 0) return "";
  const auto m = geometry.affine();
  if (!is_map(m)) return "";
  std::string text;
  for (const Direction& d : directions_of(m)) {
    text += ends[static_cast<std::size_t>(d.axis)][d.negative ? 1 : 0];
  }
  return text;
}

AxisMap turn_to(const std::string& orientation, const VolumeSource& volume) {
  const std::string own = volume.info().geometry ? orientation_of(*volume.info().geometry) : "";
  if (own.empty()) {
    throw InvalidArgument(
        fmt::format("{}: orientation {}: the file does not say which way its axes point; convert it to NIfTI with an "
                    "sform or a qform, or leave the orientation out",
                    volume.path().text(), orientation));
  }
  AxisMap map;
  for (std::size_t to = 0; to < 3; ++to) {
    const auto* const end = std::find_if(std::begin(ends), std::end(ends), [&](std::string_view letters) {
      return letters.find(orientation[to]) != letters.npos;
    });
    const std::size_t from = own.find_first_of(*end);
    map.from[2 - to] = static_cast<int>(2 - from);  // letters are x, y, z, and axes z, y, x
    map.mirrored[2 - to] = own[from] != orientation[to];
  }
  return map;
}

std::unique_ptr<VolumeSource> turned(std::shared_ptr<const VolumeSource> source, const AxisMap& map) {
  return std::make_unique<TurnedSource>(std::move(source), map);
}

}  // namespace convolume::nets::io
