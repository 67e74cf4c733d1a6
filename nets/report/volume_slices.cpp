#include "nets/report/volume_slices.hpp"

#include <algorithm>
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

VolumeSlices::VolumeSlices(const LabelledVolume& volume, index_t classes, std::pmr::memory_resource* memory)
    : name_(volume.name), classes_(classes) {
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
      return std::min(byte(value), std::uint8_t{254});
    });
    slices_.push_back(std::move(slice));
  }
}

void VolumeSlices::predict(const View<const float>& probabilities) {
  for (Slice& slice : slices_) {
    slice.prediction = picture([&](index_t y, index_t x) {
      if (classes_ == 0) return byte(255 * probabilities(0, 0, slice.z, y, x));
      index_t best = 0;
      for (index_t c = 1; c < classes_; ++c) {
        if (probabilities(0, c, slice.z, y, x) > probabilities(0, best, slice.z, y, x)) best = c;
      }
      return static_cast<std::uint8_t>(std::min<index_t>(best, 254));
    });
  }
}

}  // namespace convolume::nets
