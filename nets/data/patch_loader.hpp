// Prepares the patches of an iteration: reads voxels, maps them, and changes their intensities.
#pragma once

#include <memory_resource>

#include "nets/data/patch_map.hpp"

namespace convolume::nets {

/// The voxels from which a patch is made.
struct PatchVoxels {
  const StoredVolume *image = nullptr, *label = nullptr, *mask = nullptr;  ///< label, mask: null if there is none
  io::VoxelBox box;                                                        ///< where they lie in the volume
};

/// Where a patch goes: one sample each. If the label has several channels, each one gets whether a voxel lies in that
/// region of the data set. A label of one channel gets the label as it is. If volumes have classes instead of labels,
/// every voxel of the label gets the number of the class. The mask may be empty.
struct PatchTarget {
  View<float> image, label, mask;
};

/// Makes one patch after another. Its memory is allocated once. The steps of a patch come in this order: begin();
/// load() for all shares; place() for all shares; change(). Shares of a step may run at the same time.
class PatchLoader {
 public:
  /// Labels are the part of a patch that begins at `label_begin`. `masks`: whether voxels may not count.
  PatchLoader(const Dataset& data, const Extent3& patch, const Extent3& label_begin, const Extent3& label_extent,
              bool masks, std::pmr::memory_resource* memory);

  /// Returns the bytes that a loader allocates.
  static std::size_t bytes(const Dataset& data, const Extent3& patch, bool masks);
  /// Returns them for data without masks, rotations, scales, deformations and misaligned sections.
  static std::size_t bytes(index_t channels, const Extent3& patch);

  /// Sets the patch. `voxels` has voxels_read(map.box()) and lives until the last step.
  void begin(const PatchDraw& draw, PatchMap map, const PatchVoxels& voxels);
  const PatchMap& map() const { return map_; }
  /// Copies a share of the voxels, as floats and continued beyond the volume, to a box in memory.
  void load(index_t share, index_t shares) noexcept;
  /// Writes a share of the patch: images by interpolation, labels and masks from the nearest voxel. Labels that
  /// are ignored become 0, and their masks too.
  void place(const PatchTarget& target, index_t share, index_t shares) noexcept;
  /// Changes the intensities.
  void change(const PatchTarget& target) noexcept;

 private:
  void load_row(const StoredVolume& from, index_t c, index_t z, index_t y, float* to) const;
  void place_row(ops::Interpolation how, const float* box, index_t z, index_t y, index_t x, index_t n, float* to) const;
  void place_class(const PatchTarget& target) const;
  void place_label_row(const PatchTarget& target, index_t z, index_t y) const;
  static void split_regions(const View<float>& label, index_t z, index_t y);
  void change_channel(float* voxels, index_t c);
  void change_sections(const View<float>& image);
  void lower_resolution(float* voxels, double factor);
  void blur(float* voxels, const Extent3& extent, double sigma_z, double sigma_y, double sigma_x);
  void filter_lines(float* voxels, index_t slabs, index_t n, index_t inner, const float* weights, index_t radius);

  const Dataset& data_;
  Extent3 patch_, label_begin_, label_extent_;
  bool masks_;
  index_t channels_, labels_, layers_;  // layers: channels, the label if volumes have labels, and the mask if any has
  Tensor<float> box_;                   // [layer][z][y][x] of the map's box; later scratch of change()
  PatchDraw draw_;
  PatchMap map_;
  PatchVoxels voxels_;
};

}  // namespace convolume::nets
