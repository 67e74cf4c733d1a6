// Reads and writes PNG files without changing their values. Private to this room.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "convolume/tensor.hpp"

namespace convolume::nets::io::detail {

struct PngInfo {
  index_t height = 0, width = 0;
  int channels = 1;       ///< 1 (gray or palette) or 3 (RGB)
  int bits = 8;           ///< of a pixel in memory: 8 or 16
  int stored_bits = 8;    ///< in the file: 1 for booleans, 1 to 8 for numbers of a palette
  bool palette = false;   ///< pixels are numbers of colours
  std::string colours{};  ///< of the palette: three bytes each
  /// Returns whether pixels have the same form in memory. The same numbers may be stored with other depths.
  friend bool operator==(const PngInfo& a, const PngInfo& b) {
    return a.height == b.height && a.width == b.width && a.channels == b.channels && a.bits == b.bits &&
           a.palette == b.palette;
  }
};

/// Reads the header of a PNG. Throws FormatError (alpha, gray of 2 and 4 bits, interlaced pictures, more pixels than
/// the file can hold, damage), IoError.
PngInfo inspect_png(const std::filesystem::path& file);

/// Returns rows [begin, begin + rows) as [y][x][channel] in the machine's byte order.
std::vector<std::byte> read_png(const std::filesystem::path& file, const PngInfo& info, index_t begin, index_t rows);

/// Returns a PNG of the pixels [y][x][channel], in the machine's byte order. Equal pixels give equal bytes.
std::vector<std::byte> encode_png(const std::filesystem::path& file, const PngInfo& info,
                                  std::span<const std::byte> pixels);

}  // namespace convolume::nets::io::detail
