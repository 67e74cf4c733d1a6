// What the text of a TIFF's first page says of its pages: ImageJ's lines, or the XML of an OME-TIFF.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nets/io/volume_info.hpp"

namespace convolume::nets::io::detail {

struct TiffDescription {
  bool imagej = false;
  index_t images = 0;                            ///< pages that ImageJ counts; 0 if it does not say
  index_t channels = 1, slices = 0, frames = 1;  ///< slices: of an OME-TIFF; 0 otherwise
  /// The distance of slices, and their unit, as ImageJ writes them. ImageJ stores the other distances in tags.
  double slice_distance = 0;
  std::string unit;
  std::optional<Spacing> spacing{};  ///< of an OME-TIFF
  /// The page of each plane of an OME-TIFF, [channel][slice]. Empty: pages are slices, in their order.
  std::vector<std::size_t> pages{};
  std::vector<std::string> notes{};
};

/// Reads a description. `pages` is the number of pages of the file. Throws FormatError that names the file, the key and
/// a remedy if the text says that the pages are no slices of one volume: times, several images, planes in other files.
TiffDescription parse_tiff_description(const std::string& file, const std::string& text, std::size_t pages);

}  // namespace convolume::nets::io::detail
