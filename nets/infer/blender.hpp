// Cuts patches out of a volume, and blends what a net computes from them.
#pragma once

#include <array>
#include <memory_resource>
#include <span>
#include <stop_token>
#include <vector>

#include "nets/data/volume_window.hpp"
#include "nets/infer/patch_grid.hpp"
#include "nets/spec/net_spec.hpp"

namespace convolume::nets {

/// Receives the finished probabilities of a region, column by column. A column has some rows and columns of voxels of
/// the region, and all its planes. Positions count from the region's first voxel.
class PredictionSink {
 public:
  virtual ~PredictionSink() = default;
  /// Returns whether a voxel of the box is still missing. What is not missing is not computed.
  virtual bool needs(const io::VoxelBox& box) const = 0;
  virtual void begin(const io::VoxelBox& column) = 0;
  /// Returns the end of the planes that finished() takes together with plane z.
  virtual index_t layer_end(index_t z) const = 0;
  /// Receives a plane of the column: channel c begins c * stride floats after `values`. Several threads call it at
  /// once, for different planes of one layer.
  virtual void put(index_t z, const float* values, index_t stride) = 0;
  /// All planes of the column before `end` have been put, or were not missing. Called at the end of each layer.
  virtual void finished(index_t end, Scheduler& scheduler) = 0;
};

/// A patch of a layer: its numbers along Y and X, and the axes along which it is mirrored (bit 0: Z, 1: Y, 2: X). A
/// mirrored form of a patch is mirrored along some axes. The result of `--flip` is the mean over all forms.
struct LayerPatch {
  index_t y = 0, x = 0;
  unsigned mirrored = 0;
};

/// Loads the patches of one layer along Z after the other, and adds up their weighted probabilities. Sums are kept of
/// the planes that later layers still change.
class Blender {
 public:
  /// `region` lies in the volume of `window`. `mirrors` are the values of LayerPatch::mirrored.
  Blender(const NetSpec& spec, index_t channels, const PatchGrid& grid, const io::VoxelBox& region,
          std::vector<unsigned> mirrors, VolumeWindow& window, PredictionSink& sink, std::pmr::memory_resource* memory);

  /// Returns the bytes of the sums for a column of `rows` x `columns` voxels.
  static std::size_t sum_bytes(const PatchGrid& grid, index_t channels, index_t rows, index_t columns);
  /// Returns the box of the volume that the patches of a column read. Its extent along Z is the largest of a layer.
  static io::VoxelBox input_box(const PatchGrid& grid, const io::VoxelBox& region, const Extent3& volume,
                                const io::VoxelBox& column);

  void begin(const io::VoxelBox& column);
  /// Returns the patches of a layer that have missing voxels, in their order.
  std::vector<LayerPatch> missing(index_t layer) const;
  /// Makes the planes available that a layer reads, and takes its patches. Returns false if a stop request came first.
  bool enter(index_t layer, std::vector<LayerPatch> patches, Scheduler& scheduler, const std::stop_token& stop);
  /// Load and add rows of a patch of the layer; see PatchTasks.
  void load(std::size_t item, const View<float>& input, index_t first, index_t end) const;
  void add(std::size_t item, const View<const float>& logits, index_t first, index_t end);
  /// Hands over the planes that no later layer changes.
  void leave(index_t layer, Scheduler& scheduler);

 private:
  Extent3 start_of(const LayerPatch& patch) const;
  Extent3 input_of(const LayerPatch& patch) const;
  void probabilities(const View<const float>& logits, index_t z, index_t y, std::vector<float>& row) const;
  float* sums_at(index_t c, index_t z, index_t y) noexcept;

  const NetSpec& spec_;
  index_t channels_;
  const PatchGrid& grid_;
  io::VoxelBox region_, column_{};
  std::vector<unsigned> mirrors_;
  VolumeWindow& window_;
  PredictionSink& sink_;
  std::pmr::memory_resource* memory_;
  index_t layer_ = 0;
  index_t planes_;        // of which sums are kept; plane z lies at z % planes_
  index_t finished_ = 0;  // planes that were handed over
  std::vector<LayerPatch> patches_;
  Tensor<float> sums_;
};

}  // namespace convolume::nets
