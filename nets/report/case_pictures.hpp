// Pictures of classified patches, for a report.
#pragma once

#include <string>
#include <vector>

#include "nets/data/stored_volume.hpp"

namespace convolume::nets {

/// The middle slices of some central patches as PNG, with their true and predicted classes. Wrong ones come first.
class CasePictures {
 public:
  struct Picture {
    std::string name;
    std::size_t actual = 0, predicted = 0;  ///< classes
    std::vector<std::byte> image{};         ///< 8 bits per pixel, stretched from the 1st percentile to the 99th
  };
  CasePictures() = default;
  /// `patch` is the extent of the patches.
  explicit CasePictures(const Extent3& patch) : patch_(patch) {}

  /// Adds a case of a validation, unless enough are shown.
  void add(const std::string& name, const StoredVolume& image, std::size_t actual, std::size_t predicted,
           std::pmr::memory_resource* memory);
  const std::vector<Picture>& wrong() const { return wrong_; }
  const std::vector<Picture>& right() const { return right_; }

 private:
  static constexpr std::size_t most = 48, most_alike = 8;  // of a list, and of equal classes in it
  Extent3 patch_{1, 1, 1};
  std::vector<Picture> wrong_, right_;
};

}  // namespace convolume::nets
