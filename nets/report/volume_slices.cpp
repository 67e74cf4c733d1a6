#include "nets/report/volume_slices.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "nets/io/png.hpp"

namespace convolume::nets {
namespace {

constexpr index_t largest_side = 512;     // pixels
constexpr index_t most_pixels = 6 << 20;  // of all slices together
constexpr index_t most_slices = 256;
constexpr std::uint8_t not_counted = 255;

std::uint8_t byte(float value) {
  return std::isnan(value) ? std::uint8_t{0} : static_cast<std::uint8_t>(std::lround(std::clamp(value, 0.0f, 255.0f)));
}

/// Returns the number of the last region that a label lies in, counted from 1; 0 if there is none.
std::uint8_t last_region(float label) {
  return static_cast<std::uint8_t>(std::bit_width(static_cast<std::uint32_t>(label)));
}

}  // namespace

template <class Pixel>
std::vector<std::byte> VolumeSlices::picture(const Pixel& pixel) const {
  std::vector<std::uint8_t> pixels;
  pixels.reserve(static_cast<std::size_t>(width_ * height_));
  for (index_t y = 0; y < height_; ++y) {
    for (index_t x = 0; x < width_; ++x) pixels.push_back(pixel(y * step_, x * step_));
  }
  return io::encode_png(width_, height_, 1, pixels);
}

VolumeSlices::VolumeSlices(const LabelledVolume& volume, const Targets& targets, std::pmr::memory_resource* memory)
    : name_(volume.name), targets_(targets) {
  const Extent3 extent = volume.extent();
  step_ = (std::max(extent.y, extent.x) + largest_side - 1) / largest_side;
  width_ = (extent.x + step_ - 1) / step_;
  height_ = (extent.y + step_ - 1) / step_;
  const index_t count = std::clamp<index_t>(most_pixels / (width_ * height_), 1, std::min(extent.z, most_slices));
  for (index_t i = 0; i < count; ++i) {
    const index_t z = (2 * i + 1) * extent.z / (2 * count);
    const Tensor<float> image = volume.image.planes(z, z + 1, memory), label = volume.label.planes(z, z + 1, memory);
    const Tensor<float> mask = volume.mask ? volume.mask.planes(z, z + 1, memory) : Tensor<float>();
    const float* const plane = image.data();
    const auto range = io::robust_range(std::vector<float>(plane, plane + extent.y * extent.x));
    Slice slice{.z = z};
    slice.image = picture([&](index_t y, index_t x) { return io::gray(image.view()(0, 0, 0, y, x), range); });
    slice.label = picture([&](index_t y, index_t x) {
      const float value = label.view()(0, 0, 0, y, x);
      if (value == ignored_label || (mask && mask.view()(0, 0, 0, y, x) < 0.5f)) return not_counted;
      if (targets_.regions > 0) return last_region(value);
      return std::min(byte(value), std::uint8_t{254});
    });
    slices_.push_back(std::move(slice));
  }
}

void VolumeSlices::predict(const View<const float>& probabilities) {
  for (Slice& slice : slices_) {
    slice.prediction = picture([&](index_t y, index_t x) { return predicted(probabilities, slice.z, y, x); });
  }
}

std::uint8_t VolumeSlices::predicted(const View<const float>& probabilities, index_t z, index_t y, index_t x) const {
  const auto p = [&](index_t c) { return probabilities(0, c, z, y, x); };
  if (targets_.regions > 0) {
    index_t region = targets_.regions;
    while (region > 0 && !(p(region - 1) >= 0.5f)) --region;
    return static_cast<std::uint8_t>(region);
  }
  if (targets_.classes == 0) return byte(255 * p(0));
  index_t best = 0;
  for (index_t c = 1; c < targets_.classes; ++c) {
    if (p(c) > p(best)) best = c;
  }
  return static_cast<std::uint8_t>(std::min<index_t>(best, 254));
}

}  // namespace convolume::nets
