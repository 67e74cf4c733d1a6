#include "nets/data/patch_loader.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "convolume/cpu.hpp"
#include "nets/data/mirror.hpp"
#include "nets/data/padded_rows.hpp"

namespace convolume::nets {
namespace {

using Purpose = PatchRandom::Purpose;
constexpr index_t piece = 256;       // voxels of a row that are mapped at once
constexpr index_t most_radius = 24;  // of a filter

/// Returns the largest box over all training volumes.
Extent3 largest_box(const Dataset& data, const Extent3& patch) {
  Extent3 extent = patch;
  for (const LabelledVolume& volume : data.train) {
    const Extent3 own = PatchMap::largest_box(data.augment, patch, volume.spacing, volume.resampling, data.cubic);
    for (int axis = 0; axis < 3; ++axis) extent[axis] = std::max(extent[axis], own[axis]);
  }
  return extent;
}

index_t layers_of(const Dataset& data, bool masks) {
  return data.train.front().channels() + (data.classifies() ? 0 : 1) + (masks ? 1 : 0);
}

/// Returns the elements of a loader's box. A line with both ends of a filter fits as well.
index_t box_elements(index_t layers, const Extent3& box, const Extent3& patch) {
  return std::max(layers * box.volume(), std::max({patch.z, patch.y, patch.x}) + 2 * most_radius);
}

/// Computes the voxels of a grid from the voxels of another grid that covers the same space.
void resize(ops::Interpolation how, const float* from, const Extent3& from_extent, float* to,
            const Extent3& to_extent) {
  // The place in `from` of the centre of voxel i of `to`. It is exact in the middle of two voxels.
  const auto place = [&](int axis, index_t i) {
    const index_t n = from_extent[axis], m = to_extent[axis];
    return static_cast<float>(static_cast<double>((2 * i + 1) * n - m) / static_cast<double>(2 * m));
  };
  std::array<float, piece> at_z{}, at_y{}, at_x{};
  for (index_t x = 0; x < to_extent.x; x += piece) {
    const index_t count = std::min(piece, to_extent.x - x);
    for (index_t i = 0; i < count; ++i) at_x[static_cast<std::size_t>(i)] = place(2, x + i);
    for (index_t z = 0; z < to_extent.z; ++z) {
      at_z.fill(place(0, z));
      for (index_t y = 0; y < to_extent.y; ++y) {
        at_y.fill(place(1, y));
        ops::sample_row(how, from, from_extent, at_z.data(), at_y.data(), at_x.data(),
                        to + (z * to_extent.y + y) * to_extent.x + x, count);
      }
    }
  }
}

std::pair<index_t, index_t> share_of(index_t count, index_t share, index_t shares) {
  return {count * share / shares, count * (share + 1) / shares};
}

}  // namespace

PatchLoader::PatchLoader(const Dataset& data, const Extent3& patch, const Extent3& label_begin,
                         const Extent3& label_extent, bool masks, std::pmr::memory_resource* memory)
    : data_(data),
      patch_(patch),
      label_begin_(label_begin),
      label_extent_(label_extent),
      masks_(masks),
      channels_(data.train.front().channels()),
      labels_(data.classifies() ? 0 : 1),
      layers_(layers_of(data, masks)),
      box_({1, 1, {1, 1, box_elements(layers_, largest_box(data, patch), patch)}}, memory) {
  static_cast<void>(simd_target());  // throws if the library has no kernels for this processor
}

std::size_t PatchLoader::bytes(const Dataset& data, const Extent3& patch, bool masks) {
  return static_cast<std::size_t>(box_elements(layers_of(data, masks), largest_box(data, patch), patch)) *
         sizeof(float);
}

std::size_t PatchLoader::bytes(index_t channels, const Extent3& patch) {
  return static_cast<std::size_t>(box_elements(channels + 1, patch, patch)) * sizeof(float);
}

void PatchLoader::begin(const PatchDraw& draw, PatchMap map, const PatchVoxels& voxels) {
  draw_ = draw;
  map_ = std::move(map);
  voxels_ = voxels;
}

void PatchLoader::load(index_t share, index_t shares) noexcept {
  const Extent3 e = map_.box().extent;
  const index_t rows = e.z * e.y;
  const auto [begin, end] = share_of(layers_ * rows, share, shares);
  for (index_t i = begin; i < end; ++i) {
    const index_t layer = i / rows, z = i % rows / e.y, y = i % e.y;
    float* const to = box_.data() + i * e.x;
    if (layer < channels_) {
      load_row(*voxels_.image, layer, z, y, to);
    } else if (layer < channels_ + labels_) {
      load_row(*voxels_.label, 0, z, y, to);
    } else if (voxels_.mask != nullptr) {
      load_row(*voxels_.mask, 0, z, y, to);
    } else {
      std::fill_n(to, e.x, 1.0f);
    }
  }
}

void PatchLoader::load_row(const StoredVolume& from, index_t c, index_t z, index_t y, float* to) const {
  const LabelledVolume& volume = data_.train[draw_.volume];
  const io::VoxelBox& box = map_.box();
  const bool zero = data_.sampling.pad == Pad::zero;
  // Voxels of another spacing lie up to half a voxel outside of the volume, which is continued for them. A cubic
  // interpolation reads one voxel more.
  const index_t continued = zero && volume.resampling ? (data_.cubic ? 2 : 1) : 0;
  const PaddedRows rows{
      .from = from, .stored = voxels_.box, .volume = volume.extent(), .zero = zero, .repeated = continued};
  rows.read(c, {box.begin.z + z, box.begin.y + y, box.begin.x}, box.extent.x, to);
}

void PatchLoader::place_row(ops::Interpolation how, const float* box, index_t z, index_t y, index_t x, index_t n,
                            float* to) const {
  if (map_.exact()) {
    const auto [first, step] = map_.row(z, y, x);
    for (index_t i = 0; i < n; ++i) to[i] = box[first + i * step];
    return;
  }
  std::array<float, piece> at_z{}, at_y{}, at_x{};
  for (index_t i = 0; i < n; i += piece) {
    const index_t count = std::min(piece, n - i);
    map_.places(z, y, x + i, count, at_z.data(), at_y.data(), at_x.data());
    ops::sample_row(how, box, map_.box().extent, at_z.data(), at_y.data(), at_x.data(), to + i, count);
  }
}

void PatchLoader::place(const PatchTarget& target, index_t share, index_t shares) noexcept {
  const auto [begin, end] = share_of(patch_.z * patch_.y, share, shares);
  const index_t map_voxels = map_.box().extent.volume();
  if (labels_ == 0 && share == 0) place_class(target);
  for (index_t i = begin; i < end; ++i) {
    const index_t z = i / patch_.y, y = i % patch_.y;
    for (index_t c = 0; c < channels_; ++c) {
      place_row(map_.interpolation(), box_.data() + c * map_voxels, z, y, 0, patch_.x, &target.image(0, c, z, y, 0));
    }
    if (labels_ == 0) continue;
    const index_t label_z = z - label_begin_.z, label_y = y - label_begin_.y;
    if (label_z >= 0 && label_z < label_extent_.z && label_y >= 0 && label_y < label_extent_.y) {
      place_label_row(target, label_z, label_y);
    }
  }
}

void PatchLoader::place_class(const PatchTarget& target) const {
  const auto number = static_cast<float>(data_.train[draw_.volume].class_number);
  std::fill_n(&target.label(0, 0, 0, 0, 0), label_extent_.volume(), number);
  if (target.mask) std::fill_n(&target.mask(0, 0, 0, 0, 0), label_extent_.volume(), 1.0f);
}

void PatchLoader::place_label_row(const PatchTarget& target, index_t z, index_t y) const {
  const index_t map_voxels = map_.box().extent.volume(), n = label_extent_.x;
  const auto place = [&](index_t layer, float* to) {
    place_row(ops::Interpolation::nearest, box_.data() + layer * map_voxels, z + label_begin_.z, y + label_begin_.y,
              label_begin_.x, n, to);
  };
  float* const label = &target.label(0, 0, z, y, 0);
  place(channels_, label);
  if (masks_) {
    float* const mask = &target.mask(0, 0, z, y, 0);
    place(channels_ + 1, mask);
    // No loss computes with infinity.
    for (index_t x = 0; x < n; ++x) {
      if (label[x] == ignored_label) label[x] = mask[x] = 0;
    }
  }
  if (target.label.shape.c > 1) split_regions(target.label, z, y);
}

/// Replaces a row of labels, which lies in the first channel, by the regions in their channels.
void PatchLoader::split_regions(const View<float>& label, index_t z, index_t y) {
  const float* const all = &label(0, 0, z, y, 0);
  for (index_t region = label.shape.c - 1; region >= 0; --region) {  // the first one overwrites the labels
    float* const to = &label(0, region, z, y, 0);
    for (index_t x = 0; x < label.shape.extent.x; ++x) to[x] = in_region(all[x], region) ? 1.0f : 0.0f;
  }
}

void PatchLoader::change(const PatchTarget& target) noexcept {
  for (index_t c = 0; c < channels_; ++c) change_channel(target.image.channel(0, c), c);
  change_sections(target.image);
}

void PatchLoader::change_channel(float* voxels, index_t c) {
  const AugmentSpec& a = data_.augment;
  const PatchRandom& random = draw_.random;
  const index_t n = patch_.volume();
  // Numbers 2 c and 2 c + 1 of a stream belong to channel c.
  const auto first = static_cast<std::uint64_t>(2 * c);
  const auto drawn = [&](const AugmentSpec::Intensity& change, Purpose purpose) {
    return change.probability > 0 && random.uniform(purpose, first) < change.probability;
  };
  const auto amount = [&](const AugmentSpec::Intensity& change, Purpose purpose) {
    return random.within(purpose, first + 1, change.range);
  };
  if (drawn(a.noise, Purpose::noise)) {
    const std::uint64_t counter = random.counter(static_cast<std::uint64_t>(c * ((n + 3) / 4)));
    ops::add_noise(voxels, n, static_cast<float>(amount(a.noise, Purpose::noise)), random.key(Purpose::noise_voxels),
                   counter);
  }
  if (drawn(a.blur, Purpose::blur)) {
    const VoxelLengths spacing = data_.train[draw_.volume].grid_spacing();
    const double sigma = amount(a.blur, Purpose::blur) * *std::min_element(spacing.begin(), spacing.end());
    blur(voxels, patch_, sigma / spacing[0], sigma / spacing[1], sigma / spacing[2]);
  }
  if (drawn(a.brightness, Purpose::brightness)) {
    ops::scale_and_shift(voxels, n, 1, static_cast<float>(amount(a.brightness, Purpose::brightness)));
  }
  if (drawn(a.contrast, Purpose::contrast)) {
    const double factor = amount(a.contrast, Purpose::contrast), mean = ops::range_of(voxels, n).mean;
    ops::scale_and_shift(voxels, n, static_cast<float>(factor), static_cast<float>(mean * (1 - factor)));
  }
  // The draw is the same for all channels, because a patch has one resolution.
  if (const double at = a.low_resolution.probability; at > 0 && random.uniform(Purpose::low_resolution, 0) < at) {
    lower_resolution(voxels, random.within(Purpose::low_resolution, 1, a.low_resolution.range));
  }
  if (drawn(a.gamma, Purpose::gamma)) {
    const ops::ValueRange range = ops::range_of(voxels, n);
    if (range.largest > range.least) {
      ops::apply_gamma(voxels, n, range.least, range.largest - range.least,
                       static_cast<float>(amount(a.gamma, Purpose::gamma)));
    }
  }
}

void PatchLoader::change_sections(const View<float>& image) {
  const AugmentSpec& a = data_.augment;
  const PatchRandom& random = draw_.random;
  const auto drawn = [&](double probability, Purpose purpose) {
    return probability > 0 && random.uniform(purpose, 0) < probability;
  };
  const index_t plane = patch_.y * patch_.x;
  if (drawn(a.blurred_section.probability, Purpose::blurred_section)) {
    const index_t z = random.below(Purpose::blurred_section, 1, patch_.z);
    const double sigma = random.within(Purpose::blurred_section, 2, a.blurred_section.range);
    for (index_t c = 0; c < channels_; ++c) {
      blur(image.channel(0, c) + z * plane, {1, patch_.y, patch_.x}, 0, sigma, sigma);
    }
  }
  if (drawn(a.missing_section.probability, Purpose::missing_section)) {
    const index_t count = std::min(a.missing_section.sections, patch_.z);
    const index_t z = random.below(Purpose::missing_section, 1, patch_.z - count + 1);
    for (index_t c = 0; c < channels_; ++c) std::fill_n(image.channel(0, c) + z * plane, count * plane, 0.0f);
  }
  if (drawn(a.cut_out.probability, Purpose::cut_out)) {
    io::VoxelBox box;
    for (int axis = 0; axis < 3; ++axis) {
      box.extent[axis] = std::min(a.cut_out.extent[axis], patch_[axis]);
      box.begin[axis] =
          random.below(Purpose::cut_out, 1 + static_cast<std::uint64_t>(axis), patch_[axis] - box.extent[axis] + 1);
    }
    for (index_t c = 0; c < channels_; ++c) {
      for (index_t z = box.begin.z; z < box.end().z; ++z) {
        for (index_t y = box.begin.y; y < box.end().y; ++y) {
          std::fill_n(&image(0, c, z, y, box.begin.x), box.extent.x, 0.0f);
        }
      }
    }
  }
}

/// Replaces the voxels by the nearest ones of a grid that is `factor` times as coarse, interpolated linearly. An axis
/// that is already more than three times as coarse as both others keeps its resolution.
void PatchLoader::lower_resolution(float* voxels, double factor) {
  const int kept = coarse_axis(data_.train[draw_.volume].grid_spacing());
  Extent3 low = patch_;
  for (int axis = 0; axis < 3; ++axis) {
    const auto fewer = static_cast<index_t>(std::llround(static_cast<double>(patch_[axis]) / factor));
    if (axis != kept) low[axis] = std::max<index_t>(1, fewer);
  }
  resize(ops::Interpolation::nearest, voxels, patch_, box_.data(), low);
  resize(ops::Interpolation::linear, box_.data(), low, voxels, patch_);
}

/// Convolves with a Gaussian along each axis. Beyond its ends a line is mirrored.
void PatchLoader::blur(float* voxels, const Extent3& extent, double sigma_z, double sigma_y, double sigma_x) {
  const double sigmas[3] = {sigma_z, sigma_y, sigma_x};
  const index_t strides[3] = {extent.y * extent.x, extent.x, 1};
  for (int axis = 0; axis < 3; ++axis) {
    const double sigma = sigmas[axis];
    if (sigma < 0.05 || extent[axis] == 1) continue;
    const index_t radius = std::min(most_radius, static_cast<index_t>(std::ceil(3 * sigma)));
    std::array<float, most_radius + 1> weights{};
    double total = 0;
    for (index_t k = -radius; k <= radius; ++k) total += std::exp(-0.5 * static_cast<double>(k * k) / (sigma * sigma));
    for (index_t k = 0; k <= radius; ++k) {
      weights[static_cast<std::size_t>(k)] =
          static_cast<float>(std::exp(-0.5 * static_cast<double>(k * k) / (sigma * sigma)) / total);
    }
    filter_lines(voxels, extent.volume() / (extent[axis] * strides[axis]), extent[axis], strides[axis], weights.data(),
                 radius);
  }
}

/// Filters along an axis of n voxels that lie `inner` elements apart. Lines whose voxels are neighbours are filtered
/// together.
void PatchLoader::filter_lines(float* voxels, index_t slabs, index_t n, index_t inner, const float* weights,
                               index_t radius) {
  float* const line = box_.data();
  const index_t width = std::min(inner, std::max<index_t>(1, box_.elements() / (n + 2 * radius)));
  for (index_t s = 0; s < slabs; ++s) {
    for (index_t first = 0; first < inner; first += width) {
      const index_t count = std::min(width, inner - first);
      float* const base = voxels + s * n * inner + first;
      for (index_t k = -radius; k < n + radius; ++k) {
        std::copy_n(base + mirrored_index(k, n) * inner, count, line + (k + radius) * count);
      }
      if (inner == 1) {
        ops::filter(line + radius, 1, weights, radius, base, n);
        continue;
      }
      for (index_t k = 0; k < n; ++k) {
        ops::filter(line + (k + radius) * count, count, weights, radius, base + k * inner, count);
      }
    }
  }
}

}  // namespace convolume::nets
