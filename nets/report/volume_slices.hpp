// Pictures of slices of a validation volume, for a report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nets/data/dataset.hpp"

namespace convolume::nets {

/// Some slices of a volume as PNG: all, or as many as a page can hold, at equal distances. Pictures of more than 512
/// pixels per side are reduced by a whole factor: one of so many voxels is shown.
class VolumeSlices {
 public:
  VolumeSlices() = default;
  /// Takes the image and the label.
  VolumeSlices(const LabelledVolume& volume, const Targets& targets, std::pmr::memory_resource* memory);

  /// Takes the probabilities {1, C, Z, Y, X} that a net predicts.
  void predict(const View<const float>& probabilities);

  /// Pictures, 8 bits per pixel. Images are stretched from the 1st percentile to the 99th. Labels hold the class, and
  /// 255 where a voxel does not count. Predictions hold the class, or the probability times 255 for binary nets. Of
  /// regions, both hold the number of the last region that a voxel lies in, counted from 1, or 0.
  struct Slice {
    index_t z = 0;
    std::vector<std::byte> image{}, label{}, prediction{};
  };
  const std::string& name() const { return name_; }
  const Targets& targets() const { return targets_; }
  index_t width() const { return width_; }
  index_t height() const { return height_; }
  const std::vector<Slice>& slices() const { return slices_; }

 private:
  /// Returns the picture of a plane, whose voxels become pixels by pixel(y, x).
  template <class Pixel>
  std::vector<std::byte> picture(const Pixel& pixel) const;
  std::uint8_t predicted(const View<const float>& probabilities, index_t z, index_t y, index_t x) const;

  std::string name_;
  Targets targets_;
  index_t width_ = 0, height_ = 0, step_ = 1;
  std::vector<Slice> slices_;
};

}  // namespace convolume::nets
