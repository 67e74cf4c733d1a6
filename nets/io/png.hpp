// Writes pictures of slices as PNG.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "convolume/tensor.hpp"

namespace convolume::nets::io {

/// Values that become black and white.
struct GrayRange {
  float low = 0, high = 1;
};

/// Returns the 1st and 99th percentile of the finite values; 0 and 1 if there is none.
GrayRange robust_range(std::vector<float> values);

/// Returns the shade of a value, from 0 to 255. NaN is black, and everything is gray if the range is empty.
std::uint8_t gray(float value, const GrayRange& range);

/// Returns rows of 8-bit gray (channels 1) or RGB (channels 3) pixels, top row first, as a PNG: the pixels take `width
/// * height * channels` bytes. Throws InvalidArgument (sizes, channels, number of bytes).
std::vector<std::byte> encode_png(index_t width, index_t height, int channels, std::span<const std::uint8_t> pixels);

/// Writes what encode_png() returns. The file is replaced as a whole. Throws what encode_png() throws, and IoError.
void write_png(const std::filesystem::path& file, index_t width, index_t height, int channels,
               std::span<const std::uint8_t> pixels);

/// Writes slice `z` of batch 0, channel 0 of the image, the prediction and, if given, the label side by side, as 8-bit
/// gray.
///
/// The image is stretched from its 1st to its 99th percentile; prediction and label map 0..1 to 0..255. NaN is black.
/// White gaps of 4 pixels separate the panels. Each panel is enlarged by the smallest integer that makes it at least
/// 256 pixels wide. Throws InvalidArgument (no such slice, missing view), ShapeMismatch (different extents), IoError.
void write_slice_panel(const std::filesystem::path& file, const View<const float>& image,
                       const View<const float>& prediction, const View<const float>& label, index_t z);

}  // namespace convolume::nets::io
