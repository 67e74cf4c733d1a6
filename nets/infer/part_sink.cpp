#include "nets/infer/part_sink.hpp"

#include <algorithm>

#include "nets/base/parallel.hpp"
#include "nets/io/volume_source.hpp"

namespace convolume::nets {

PartSink::PartSink(io::PartialZarr& part, Stored stored, index_t channels, std::string name)
    : part_(part),
      stored_(stored),
      channels_(channels),
      name_(std::move(name)),
      voxels_(stored_as(stored, channels, part.extent())) {}

std::size_t PartSink::bytes(const io::SinkOptions& options, index_t rows, index_t columns, int threads) {
  const auto [chunk_bytes, chunk] = io::partial_chunk(options);
  const auto layer = static_cast<std::size_t>(options.channels * chunk.z * rows * columns) * io::size_of(options.type);
  constexpr std::size_t copies = 3;  // the voxels of a chunk, padded, and encoded
  return layer + static_cast<std::size_t>(threads) * copies * chunk_bytes;
}

void PartSink::begin(const io::VoxelBox& column) {
  column_ = column;
  const index_t plane = column.extent.y * column.extent.x;
  const auto bytes = static_cast<std::size_t>(voxels_.channels * part_.chunk().z * plane) * io::size_of(voxels_.type);
  if (bytes > layer_.capacity()) layer_ = {};  // first, so that both are never in memory
  layer_.resize(bytes);
}

index_t PartSink::layer_end(index_t z) const {
  return std::min(voxels_.extent.z, (z / part_.chunk().z + 1) * part_.chunk().z);
}

void PartSink::put(index_t z, const float* values, index_t stride) {
  const index_t plane = column_.extent.y * column_.extent.x, planes = part_.chunk().z;
  const std::size_t voxel = io::size_of(voxels_.type);
  const ProbabilityRow row{.values = values, .stride = stride, .channels = channels_, .count = plane};
  for (index_t c = 0; c < voxels_.channels; ++c) {
    std::byte* const to = layer_.data() + static_cast<std::size_t>((c * planes + z % planes) * plane) * voxel;
    const index_t nan = store_row(row, c, stored_, voxels_.type, to);
    if (nan < plane) {
      fail_nan(name_, {z, column_.begin.y + nan / column_.extent.x, column_.begin.x + nan % column_.extent.x},
               voxels_.type);
    }
  }
}

void PartSink::finished(index_t end, Scheduler& scheduler) {
  const index_t planes = part_.chunk().z, begin = (end - 1) / planes * planes;
  std::vector<io::ChunkPlace> missing;
  part_.grid().for_each({0, voxels_.channels},
                        {{begin, column_.begin.y, column_.begin.x}, {end - begin, column_.extent.y, column_.extent.x}},
                        [&](const io::ChunkPlace& place) {
                          if (!part_.has(place)) missing.push_back(place);
                        });
  const io::VoxelBox stored{{begin, column_.begin.y, column_.begin.x}, {planes, column_.extent.y, column_.extent.x}};
  const std::size_t voxel = io::size_of(voxels_.type);
  const std::size_t of_channel = static_cast<std::size_t>(stored.extent.volume()) * voxel;
  run_parallel(scheduler, "write_chunks", static_cast<index_t>(missing.size()), [&](index_t i) {
    const io::ChunkPlace& place = missing[static_cast<std::size_t>(i)];
    std::vector<std::byte> chunk(static_cast<std::size_t>(place.box.extent.volume()) * voxel);
    io::copy_overlap(layer_.data() + static_cast<std::size_t>(place.c) * of_channel, stored, chunk.data(), place.box,
                     voxel);
    part_.stage(place, chunk);
  });
  part_.publish();
}

}  // namespace convolume::nets
