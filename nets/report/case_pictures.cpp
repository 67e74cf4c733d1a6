#include "nets/report/case_pictures.hpp"

#include <algorithm>

#include "nets/data/padded_rows.hpp"
#include "nets/io/png.hpp"

namespace convolume::nets {

void CasePictures::add(const std::string& name, const StoredVolume& image, std::size_t actual, std::size_t predicted,
                       std::pmr::memory_resource* memory) {
  std::vector<Picture>& list = actual == predicted ? right_ : wrong_;
  const auto alike = std::count_if(list.begin(), list.end(), [&](const Picture& other) {
    return other.actual == actual && other.predicted == predicted;
  });
  if (list.size() >= most || static_cast<std::size_t>(alike) >= most_alike) return;
  const Extent3 all = image.shape().extent;
  const Extent3 begin = central_begin(all, patch_);
  const index_t height = std::min(all.y, patch_.y), width = std::min(all.x, patch_.x);
  const index_t top = std::max<index_t>(0, begin.y), left = std::max<index_t>(0, begin.x);
  const index_t z = std::clamp<index_t>(begin.z + patch_.z / 2, 0, all.z - 1);
  const Tensor<float> plane = image.planes(z, z + 1, memory);
  std::vector<float> voxels;
  for (index_t y = 0; y < height; ++y) {
    const float* const row = plane.data() + (top + y) * all.x + left;
    voxels.insert(voxels.end(), row, row + width);
  }
  const io::GrayRange range = io::robust_range(voxels);
  std::vector<std::uint8_t> pixels;
  for (const float voxel : voxels) pixels.push_back(io::gray(voxel, range));
  list.push_back({name, actual, predicted, io::encode_png(width, height, 1, pixels)});
}

}  // namespace convolume::nets
