#include "nets/data/patch_draw.hpp"

#include <algorithm>
#include <numbers>
#include <optional>

namespace convolume::nets {
namespace {

using Purpose = PatchRandom::Purpose;

// Numbers of the stream Purpose::place.
constexpr std::uint64_t of_volume = 0, of_foreground = 1, of_class = 2, of_voxel = 3, of_origin = 4;

/// Returns the least and the largest origin along an axis.
std::pair<index_t, index_t> origins(index_t volume, index_t patch) {
  return {std::min<index_t>(0, volume - patch), std::max<index_t>(0, volume - patch)};
}

double weight_of(const LabelledVolume& volume, const Extent3& patch, VolumeChoice choice) {
  switch (choice) {
    case VolumeChoice::equal:
      return 1;
    case VolumeChoice::weights:
      return volume.weight;
    case VolumeChoice::by_size:
      break;
  }
  double places = 1;
  for (int axis = 0; axis < 3; ++axis) {
    const auto [least, largest] = origins(volume.grid()[axis], patch[axis]);
    places *= static_cast<double>(largest - least + 1);
  }
  return places;
}

std::size_t draw_volume(const Dataset& data, const Extent3& patch, const PatchRandom& random) {
  double total = 0;
  for (const LabelledVolume& volume : data.train) total += weight_of(volume, patch, data.sampling.volumes);
  // 64 random bits, because by_size may count more places than 24 bits tell apart.
  const double bits = static_cast<double>(random.below(Purpose::place, of_volume, index_t{1} << 53)) * 0x1p-53;
  double place = bits * total;
  std::size_t last = 0;
  for (std::size_t v = 0; v < data.train.size(); ++v) {
    const double weight = weight_of(data.train[v], patch, data.sampling.volumes);
    if (weight <= 0) continue;
    last = v;
    if (place < weight) return v;
    place -= weight;
  }
  return last;
}

/// Draws a voxel of a foreground class that the volume has.
std::optional<Extent3> draw_foreground(const LabelledVolume& volume, const PatchRandom& random) {
  if (!volume.labels) return std::nullopt;
  const auto& classes = volume.labels->classes;
  index_t present = 0;
  for (std::size_t c = 1; c < classes.size(); ++c) present += classes[c].positions.empty() ? 0 : 1;
  if (present == 0) return std::nullopt;
  index_t left = random.below(Purpose::place, of_class, present);
  std::size_t chosen = 1;
  while (classes[chosen].positions.empty() || left-- > 0) ++chosen;
  const auto& positions = classes[chosen].positions;
  const auto voxel = static_cast<index_t>(positions[static_cast<std::size_t>(
      random.below(Purpose::place, of_voxel, static_cast<index_t>(positions.size())))]);
  const Extent3 e = volume.extent();
  Extent3 at{voxel / (e.y * e.x), voxel / e.x % e.y, voxel % e.x};
  for (int axis = 0; volume.resampling && axis < 3; ++axis) {
    const double zoom = volume.resampling->zoom[static_cast<std::size_t>(axis)];
    at[axis] = static_cast<index_t>((static_cast<double>(at[axis]) + 0.5) / zoom);
  }
  return at;
}

void draw_place(PatchDraw& draw, const Dataset& data, const Extent3& patch) {
  const PatchRandom& random = draw.random;
  draw.volume = draw_volume(data, patch, random);
  const LabelledVolume& volume = data.train[draw.volume];
  std::optional<Extent3> centre;
  if (random.uniform(Purpose::place, of_foreground) < data.sampling.foreground) {
    centre = draw_foreground(volume, random);
  }
  for (int axis = 0; axis < 3; ++axis) {
    const auto [least, largest] = origins(volume.grid()[axis], patch[axis]);
    draw.origin[axis] = centre ? std::clamp((*centre)[axis] - patch[axis] / 2, least, largest)
                               : least + random.below(Purpose::place, of_origin + static_cast<std::uint64_t>(axis),
                                                      largest - least + 1);
  }
}

}  // namespace

PatchDraw PatchDraw::draw(const Dataset& data, const Extent3& patch, std::uint64_t seed, std::uint64_t iteration,
                          index_t sample) {
  PatchDraw draw;
  draw.random = PatchRandom(seed, iteration, sample);
  const PatchRandom& random = draw.random;
  const AugmentSpec& a = data.augment;
  draw_place(draw, data, patch);
  const bool allowed[3] = {a.flip_z, a.flip_y, a.flip_x};
  for (int axis = 0; axis < 3; ++axis) {
    draw.flip[axis] = random.below(Purpose::turn, static_cast<std::uint64_t>(axis), 2) == 1 &&
                      (allowed[axis] || (axis > 0 && a.rotate90));
  }
  draw.transpose = random.below(Purpose::turn, 3, 2) == 1 && a.rotate90;
  if (random.uniform(Purpose::rotate, 0) < a.rotate.probability) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const double degrees = a.rotate.degrees[axis];
      draw.radians[axis] = random.within(Purpose::rotate, axis + 1, {-degrees, degrees}) * std::numbers::pi / 180;
    }
  }
  if (random.uniform(Purpose::scale, 0) < a.scale.probability) {
    draw.growth = random.within(Purpose::scale, 1, a.scale.range);
  }
  draw.elastic = random.uniform(Purpose::elastic, 0) < a.elastic.probability;
  if (patch.z > 1 && random.uniform(Purpose::misalign, 0) < a.misalign.probability) {
    draw.misaligned = 1 + random.below(Purpose::misalign, 1, patch.z - 1);
    draw.slips = random.below(Purpose::misalign, 2, 2) == 1;
    for (std::size_t axis = 0; axis < 2; ++axis) {
      draw.shift[axis] = random.below(Purpose::misalign, 3 + axis, 2 * a.misalign.pixels + 1) - a.misalign.pixels;
    }
  }
  return draw;
}

}  // namespace convolume::nets
