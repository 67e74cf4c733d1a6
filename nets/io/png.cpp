#include "nets/io/png.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <png.h>

#include "core/files.hpp"

namespace convolume::nets::io {
namespace {

constexpr index_t gap = 4, least_width = 256;

std::vector<float> values_of(const View<const float>& view, index_t z) {
  std::vector<float> values;
  for (index_t y = 0; y < view.shape.extent.y; ++y) {
    for (index_t x = 0; x < view.shape.extent.x; ++x) values.push_back(view(0, 0, z, y, x));
  }
  return values;
}

}  // namespace

GrayRange robust_range(std::vector<float> values) {
  std::erase_if(values, [](float value) { return !std::isfinite(value); });
  if (values.empty()) return {};
  const auto at = [&](double share) {
    const auto rank = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), rank, values.end());
    return *rank;
  };
  return {at(0.01), at(0.99)};
}

std::uint8_t gray(float value, const GrayRange& range) {
  if (!(range.high > range.low)) return 128;  // a flat slice
  const float scaled = (value - range.low) / (range.high - range.low);
  return std::isnan(scaled) ? std::uint8_t{0} : static_cast<std::uint8_t>(std::clamp(scaled, 0.0f, 1.0f) * 255 + 0.5f);
}

std::vector<std::byte> encode_png(index_t width, index_t height, int channels, std::span<const std::uint8_t> pixels) {
  constexpr index_t largest = 1'000'000;  // libpng's own limit
  if (width < 1 || height < 1 || width > largest || height > largest || (channels != 1 && channels != 3)) {
    throw InvalidArgument(fmt::format("a picture of {} x {} with {} channels; give 1 to {} pixels, 1 or 3 channels",
                                      width, height, channels, largest));
  }
  const index_t stride = width * channels;
  if (std::cmp_not_equal(pixels.size(), stride * height)) {
    throw InvalidArgument(fmt::format("a picture of {} x {} with {} channels takes {} bytes, but {} were given", width,
                                      height, channels, stride * height, pixels.size()));
  }
  png_image picture{};
  picture.version = PNG_IMAGE_VERSION;
  picture.width = static_cast<png_uint_32>(width);
  picture.height = static_cast<png_uint_32>(height);
  picture.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  std::vector<std::byte> encoded(PNG_IMAGE_PNG_SIZE_MAX(picture));
  png_alloc_size_t size = encoded.size();
  if (!png_image_write_to_memory(&picture, encoded.data(), &size, 0, pixels.data(), static_cast<png_int_32>(stride),
                                 nullptr)) {
    throw IoError(fmt::format("encoding a PNG failed: {}", picture.message));
  }
  encoded.resize(size);
  return encoded;
}

void write_png(const std::filesystem::path& file, index_t width, index_t height, int channels,
               std::span<const std::uint8_t> pixels) {
  const auto encoded = encode_png(width, height, channels, pixels);
  const std::span<const std::byte> bytes(encoded);
  write_file_atomically(file, std::span(&bytes, 1));
}

void write_slice_panel(const std::filesystem::path& file, const View<const float>& image,
                       const View<const float>& prediction, const View<const float>& label, index_t z) {
  std::vector<View<const float>> views{image, prediction};
  if (label) views.push_back(label);
  const Extent3 extent = image.shape.extent;
  for (const auto& view : views) {
    if (!view || view.shape.n < 1 || view.shape.c < 1) {
      throw InvalidArgument(fmt::format("{}: image or prediction is missing", file.string()));
    }
    if (view.shape.extent != extent) {
      throw ShapeMismatch(
          fmt::format("{}: the image has {} voxels, but prediction or label has {}; crop them to the same box",
                      file.string(), to_string(extent), to_string(view.shape.extent)));
    }
  }
  if (z < 0 || z >= extent.z || extent.y < 1 || extent.x < 1) {
    throw InvalidArgument(
        fmt::format("{}: slice {} is not inside a volume of {}", file.string(), z, to_string(extent)));
  }
  const index_t scale = (least_width + extent.x - 1) / extent.x;
  const index_t panel = extent.x * scale, height = extent.y * scale;
  const index_t width = static_cast<index_t>(views.size()) * (panel + gap) - gap;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(width * height), 255);
  for (std::size_t i = 0; i < views.size(); ++i) {
    const GrayRange range = i == 0 ? robust_range(values_of(image, z)) : GrayRange{};
    for (index_t y = 0; y < height; ++y) {
      std::uint8_t* const row = pixels.data() + y * width + static_cast<index_t>(i) * (panel + gap);
      for (index_t x = 0; x < panel; ++x) row[x] = gray(views[i](0, 0, z, y / scale, x / scale), range);
    }
  }
  write_png(file, width, height, 1, pixels);
}

}  // namespace convolume::nets::io
