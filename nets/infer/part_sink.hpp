// Stores finished probabilities as the voxels of a file.
#pragma once

#include <string>
#include <vector>

#include "nets/infer/blender.hpp"
#include "nets/infer/stored_voxels.hpp"
#include "nets/io/partial_zarr.hpp"

namespace convolume::nets {

/// Writes the chunks of a column as soon as all their planes are finished. Chunks that exist are not missing.
class PartSink final : public PredictionSink {
 public:
  /// `channels` is the number of probabilities of a voxel. `name` is the name of the output, for messages.
  PartSink(io::PartialZarr& part, Stored stored, index_t channels, std::string name);

  /// Returns the bytes that a column of `rows` x `columns` voxels takes until its chunks are written.
  static std::size_t bytes(const io::SinkOptions& options, index_t rows, index_t columns, int threads);

  bool needs(const io::VoxelBox& box) const override { return !part_.has(box); }
  void begin(const io::VoxelBox& column) override;
  index_t layer_end(index_t z) const override;
  void put(index_t z, const float* values, index_t stride) override;
  void finished(index_t end, Scheduler& scheduler) override;

 private:
  io::PartialZarr& part_;
  Stored stored_;
  index_t channels_;
  std::string name_;
  io::SinkOptions voxels_;
  io::VoxelBox column_{};
  std::vector<std::byte> layer_;  // the planes of a layer of chunks: [c][z][y][x]
};

}  // namespace convolume::nets
