#include "nets/infer/part_sink.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "nets/base/parallel.hpp"
#include "nets/io/volume_source.hpp"

namespace convolume::nets {
namespace {

constexpr index_t most_classes_of_a_byte = 256;

std::uint16_t most_probable(const float* values, index_t stride, index_t channels) {
  index_t best = 0;
  for (index_t c = 1; c < channels; ++c) {
    if (values[c * stride] > values[best * stride]) best = c;
  }
  return static_cast<std::uint16_t>(best);
}

std::uint16_t byte_of(float probability) {
  return static_cast<std::uint16_t>(std::clamp(probability, 0.0f, 1.0f) * 255.0f + 0.5f);
}

}  // namespace

io::SinkOptions stored_as(Stored stored, index_t channels, const Extent3& extent) {
  io::SinkOptions options{.channels = stored == Stored::classes ? 1 : channels, .extent = extent};
  if (stored == Stored::bytes || stored == Stored::binary) options.type = io::VoxelType::uint8;
  if (stored == Stored::classes) {
    options.type = channels <= most_classes_of_a_byte ? io::VoxelType::uint8 : io::VoxelType::uint16;
  }
  return options;
}

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
  for (index_t c = 0; c < voxels_.channels; ++c) {
    std::byte* const to = layer_.data() + static_cast<std::size_t>((c * planes + z % planes) * plane) * voxel;
    const float* const from = values + c * stride;
    if (stored_ == Stored::probabilities) {
      std::memcpy(to, from, static_cast<std::size_t>(plane) * voxel);
      continue;
    }
    for (index_t v = 0; v < plane; ++v) {
      if (std::isnan(from[v])) {
        throw NumericalError(fmt::format(
            "{}: voxel (z {}, y {}, x {}) is NaN, which {} cannot hold; check the checkpoint, or write float32", name_,
            z, column_.begin.y + v / column_.extent.x, column_.begin.x + v % column_.extent.x,
            io::name_of(voxels_.type)));
      }
      const std::uint16_t number = stored_ == Stored::bytes    ? byte_of(from[v])
                                   : stored_ == Stored::binary ? static_cast<std::uint16_t>(from[v] >= 0.5f)
                                                               : most_probable(from + v, stride, channels_);
      std::memcpy(to + static_cast<std::size_t>(v) * voxel, &number, voxel);  // the low bytes come first
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
