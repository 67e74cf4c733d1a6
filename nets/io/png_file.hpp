// Reads and writes PNG files of 8 and 16 bits without changing their values. Private to this room.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "convolume/tensor.hpp"

namespace convolume::nets::io::detail {

struct PngInfo {
  index_t height = 0, width = 0;
  int channels = 1;  ///< 1 (gray) or 3 (RGB)
  int bits = 8;      ///< 8 or 16
  friend bool operator==(const PngInfo&, const PngInfo&) = default;
};

/// Reads the header of a PNG. Throws FormatError (palettes, alpha, fewer than 8 bits, interlaced pictures, more pixels
/// than the file can hold, damage), IoError.
PngInfo inspect_png(const std::filesystem::path& file);

/// Returns rows [begin, begin + rows) as [y][x][channel] in the machine's byte order.
std::vector<std::byte> read_png(const std::filesystem::path& file, const PngInfo& info, index_t begin, index_t rows);

/// Returns a PNG of the pixels [y][x][channel], in the machine's byte order. Equal pixels give equal bytes.
std::vector<std::byte> encode_png(const std::filesystem::path& file, const PngInfo& info,
                                  std::span<const std::byte> pixels);

}  // namespace convolume::nets::io::detail
